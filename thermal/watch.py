"""Trimmed copies of API objects in memory, kept current by list and watch.

One list, then changes only: on a fleet of thousands of nodes, listing every few seconds would be
the largest load on the API server. A watch is reopened every minute, so that a connection that died
silently is noticed within that time.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from daemon.backoff import Backoff
from daemon.logs import fields
from thermal.api import Api, Query, Watching
from thermal.errors import ApiError, GoneError, api_error
from thermal.objects import Json

log = logging.getLogger(__name__)

T = TypeVar("T")
_WATCH_SECONDS = 60


class Cache(Generic[T]):
    """The objects of one collection by name; a Service of the supervisor with its own thread."""

    def __init__(
        self,
        source: Api,
        path: str,
        trim: Callable[[Json], T],
        *,
        query: Query | None = None,
        backoff: Backoff | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        failed: Callable[[ApiError], None] = lambda _error: None,
        watch_seconds: int = _WATCH_SECONDS,
    ) -> None:
        self._source = source
        self._path = path
        self._trim = trim
        self._query = dict(query or {})
        self._backoff = backoff or Backoff(ceiling_seconds=30.0)
        self._monotonic = monotonic
        self._failed = failed
        self._watch_seconds = watch_seconds
        self._lock = threading.Lock()
        self._records: dict[str, T] = {}
        self._version: str | None = None
        self._watching: Watching | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)
        self.contact_at: float | None = None

    def records(self) -> dict[str, T]:
        """Return a copy of the records by name."""
        with self._lock:
            return dict(self._records)

    @property
    def synced(self) -> bool:
        """Whether a complete list was read once."""
        return self.contact_at is not None

    def fresh(self, seconds: float) -> bool:
        """Tell whether the API server was heard within the last ``seconds``."""
        return self.contact_at is not None and self._monotonic() - self.contact_at <= seconds

    def start(self) -> None:
        """Begin in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, also out of a blocked read."""
        self._stop.set()
        with self._lock:
            watching = self._watching
        if watching is not None:
            watching.stop()
        self._thread.join(timeout=1.0)

    def advance(self) -> None:
        """List where there is no version to watch from, then watch once. Raises ApiError."""
        if self._version is None:
            # Trimmed page by page: five thousand whole Nodes would take more memory than all else.
            records: dict[str, T] = {}
            version = ""
            for page in self._source.pages(self._path, self._query):
                records.update((_name(item), self._trim(item)) for item in page.items)
                version = page.resource_version
            with self._lock:
                self._records = records
            self._version = version
            self.contact_at = self._monotonic()
        watching = self._source.watch(
            self._path, self._version, seconds=self._watch_seconds, query=self._query
        )
        with self._lock:
            self._watching = watching
        if self._stop.is_set():
            watching.stop()
        for event in watching.events():
            self._apply(event)
            self.contact_at = self._monotonic()
        self.contact_at = self._monotonic()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.advance()
                self._backoff.reset()
                # Keeps a server that ends every watch at once from being asked in a loop.
                self._stop.wait(random.uniform(0.05, 0.5))  # noqa: S311 (spreads requests)
            except ApiError as error:
                if isinstance(error, GoneError):
                    self._version = None
                self._failed(error)
                delay = self._backoff.next_delay_seconds()
                log.warning(
                    "watch interrupted",
                    extra=fields(path=self._path, error=error, retry_in_seconds=round(delay, 1)),
                )
                self._stop.wait(delay)
            except Exception:
                self._version = None
                log.exception("watch failed", extra=fields(path=self._path))
                self._stop.wait(self._backoff.next_delay_seconds())

    def _apply(self, event: Json) -> None:
        kind, item = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            raise api_error("watch", int(item.get("code") or 0), str(item.get("message", "")))
        version = (item.get("metadata") or {}).get("resourceVersion")
        with self._lock:
            if kind in ("ADDED", "MODIFIED"):
                self._records[_name(item)] = self._trim(item)
            elif kind == "DELETED":
                self._records.pop(_name(item), None)
        if version:
            self._version = version


def _name(item: Json) -> str:
    return str((item.get("metadata") or {}).get("name", ""))

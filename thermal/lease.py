"""Leader election by a Lease, judged by the monotonic clock of each contender.

A holder is leader for ten seconds after the start of its last successful renewal; others wait until
they have seen the Lease unchanged for its whole duration (15 s). Neither looks at the times in the
Lease: boards without a clock of their own disagree by hours. Calls end within five seconds, so a
write begun as leader is over before anybody else may begin.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from daemon.logs import fields
from thermal import wallclock
from thermal.api import Api
from thermal.errors import ApiError, ConflictError, NotFoundError
from thermal.objects import Json

log = logging.getLogger(__name__)

DURATION_SECONDS = 15
LEADING_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    version: str
    at: float


class Elector:
    """One contender; :meth:`step` is called every two seconds, anything else from any thread."""

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        name: str,
        identity: str,
        monotonic: Callable[[], float] = time.monotonic,
        failed: Callable[[ApiError], None] = lambda _error: None,
    ) -> None:
        self._api = api
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._collection}/{name}"
        self._name = name
        self._identity = identity
        self._monotonic = monotonic
        self._failed = failed
        self._lock = threading.Lock()
        self._seen: _Seen | None = None
        self._terms = 0
        self._until: float | None = None
        self._released = False
        self.holder: str | None = None

    @property
    def term(self) -> int | None:
        """The number of this contender's current term, None while it does not lead."""
        until = self._until
        return self._terms if until is not None and self._monotonic() < until else None

    def step(self) -> None:
        """Acquire or renew; failures are logged, and leading ends by itself."""
        with self._lock:
            if self._released:
                return
            was = self.term
            try:
                self._contend()
            except ConflictError:
                log.debug("another contender was faster")
            except ApiError as error:
                self._failed(error)
                log.warning("lease cannot be used", extra=fields(error=error))
            if was is not None and self.term is None:
                self._until = None
                log.warning("no longer leader", extra=fields(holder=self.holder))

    def release(self) -> None:
        """Give the Lease up, so that a successor need not wait; called once at the end."""
        with self._lock:
            self._released = True
            leading, self._until = self.term is not None, None
            if not leading:
                return
            try:
                lease = self._api.get(self._path)
                if (lease.get("spec") or {}).get("holderIdentity") == self._identity:
                    self._write(lease, {"holderIdentity": "", "leaseDurationSeconds": 1})
            except ApiError as error:
                log.warning("lease not released", extra=fields(error=error))

    def _contend(self) -> None:
        started = self._monotonic()
        try:
            lease = self._api.get(self._path)
        except NotFoundError:
            lease = self._api.create(
                self._collection,
                {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": self._name},
                    "spec": {"leaseTransitions": 0},
                },
            )
        spec = lease.get("spec") or {}
        self.holder = spec.get("holderIdentity") or None
        if self.holder not in (None, self._identity) and not self._expired(lease):
            self._until = None
            return
        now = wallclock.now_micro()
        changes = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": DURATION_SECONDS,
            "renewTime": now,
        }
        if self.holder != self._identity:
            changes["acquireTime"] = now
            changes["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        leading = self.term is not None
        self._write(lease, changes)
        self.holder = self._identity
        if not leading:
            self._terms += 1
            log.info("leading", extra=fields(lease=self._path, identity=self._identity))
        self._until = started + LEADING_SECONDS

    def _expired(self, lease: Json) -> bool:
        version = lease["metadata"]["resourceVersion"]
        now = self._monotonic()
        if self._seen is None or self._seen.version != version:
            self._seen = _Seen(version=version, at=now)
        duration = float((lease.get("spec") or {}).get("leaseDurationSeconds") or DURATION_SECONDS)
        return now - self._seen.at > duration

    def _write(self, lease: Json, changes: Json) -> None:
        version = lease["metadata"]["resourceVersion"]
        self._api.patch(self._path, {"metadata": {"resourceVersion": version}, "spec": changes})

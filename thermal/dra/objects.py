"""Writes one kind of cluster object: what slices and rules have in common."""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from daemon.backoff import Backoff
from daemon.logs import fields
from thermal.api import Api
from thermal.errors import ApiError, ConflictError, NotFoundError, UnavailableError
from thermal.objects import Json

log = logging.getLogger(__name__)

Operation = Literal["create", "update", "delete"]
#: ``behind``: the cache did not know the newest; ``away``: nothing else should be tried now;
#: ``refused``: for a reason that takes a person.
Outcome = Literal["written", "behind", "away", "refused"]
#: A name that is taken for longer is no news that the cache has yet to hear.
_TAKEN_SECONDS = 15.0
#: Whoever wants a name asks for it again sooner than this.
_ASKED_AGAIN_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """An object to be created, patched with ``body``, or deleted, for the sake of ``node``."""

    operation: Operation
    name: str
    node: str
    body: Json


class Objects:
    """Writes objects of ``kind``, which are in the API at ``path``; counts what was written."""

    def __init__(
        self,
        client: Api,
        *,
        kind: str,
        path: str,
        failed: Callable[[ApiError], None] = lambda _error: None,
    ) -> None:
        self._client = client
        self._kind = kind
        self._path = path
        self._failed = failed
        self._backoff = Backoff()
        self._retry_at = 0.0
        #: Since when an object that we do not see has the name of one to be created, and until when
        #: that was seen.
        self._taken: dict[str, tuple[float, float]] = {}
        self.writes: Counter[str] = Counter({"create": 0, "update": 0, "delete": 0})

    def forget(self) -> None:
        """Begin anew: with another term of leadership failures of the last do not count."""
        self._backoff = Backoff()
        self._retry_at = 0.0
        self._taken = {}

    def ready(self, now: float) -> bool:
        """Tell whether the API server may be asked, after failures, at monotonic time ``now``."""
        return now >= self._retry_at

    def apply(self, write: Write, now: float) -> Outcome:
        """Write."""
        path = f"{self._path}/{write.name}"
        try:
            if write.operation == "delete":
                self._client.delete(path)
            elif write.operation == "create":
                self._client.create(self._path, write.body)
            else:
                self._client.patch(path, write.body)
        except (ConflictError, NotFoundError) as error:
            if write.operation != "create" or not self._is_taken(write, now):
                return "behind"
            self._failed(error)
            log.error(  # noqa: TRY400 (one line)
                "%s of that name is not ours: delete it, or give it back its label",
                self._kind,
                extra=fields(node=write.node, error=error),
            )
            return "refused"
        except UnavailableError as error:
            self._failed(error)
            delay = self._backoff.next_delay_seconds()
            self._retry_at = now + max(delay, error.retry_after_seconds or 0.0)
            log.warning("%ss cannot be written", self._kind, extra=fields(error=error))
            return "away"
        except ApiError as error:
            self._failed(error)
            log.error(  # noqa: TRY400 (one line)
                "%s refused", self._kind, extra=fields(node=write.node, error=error)
            )
            return "refused"
        self._backoff.reset()
        self._taken.pop(_name(write), None)
        self.writes[write.operation] += 1
        log.info(
            "%s written",
            self._kind,
            extra=fields(operation=write.operation, node=write.node, name=write.name),
        )
        return "written"

    def _is_taken(self, write: Write, now: float) -> bool:
        """Tell whether the name of an object to be created has been taken for long."""
        self._taken = {
            name: (since, seen)
            for name, (since, seen) in self._taken.items()
            if now - seen <= _ASKED_AGAIN_SECONDS
        }
        since, _ = self._taken.get(_name(write), (now, now))
        self._taken[_name(write)] = since, now
        return now - since >= _TAKEN_SECONDS


def _name(write: Write) -> str:
    return write.name or str(write.body.get("metadata", {}).get("name", ""))

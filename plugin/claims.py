"""What containers hold: what the kubelet told, and what it was given since it was asked.

The kubelet lists a device in PodResources a moment after Allocate has answered, and the plugin asks
only every few seconds. Until then the identifier must not count as free.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

#: An identifier that the kubelet still does not list after this time was never used.
UNLISTED_SECONDS = 60.0
#: An answer of a kubelet that has just started may be there before its start is noticed.
_NOTICED_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The kubelet's last answer: identifiers by resource.

    ``asked_at`` is the monotonic time of the question, None where there never was an answer.
    """

    held: Mapping[str, Collection[str]] = field(default_factory=dict)
    asked_at: float | None = None


class Claims:
    """Identifiers in use. ``known`` gives the kubelet's last answer, from memory.

    ``lock`` makes handing out identifiers and publishing a list that depends on who holds them
    exclude each other. Whoever holds it does not wait for anything.
    """

    def __init__(
        self,
        known: Callable[[], Known] = Known,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._known = known
        self._monotonic = monotonic
        self._given: dict[tuple[str, str], float] = {}
        self._seen: dict[tuple[str, str], float] = {}
        self.lock = threading.RLock()

    @property
    def informed(self) -> bool:
        """Whether the kubelet ever told who holds what; if not, nothing counts as free."""
        return self._known().asked_at is not None

    def give(self, resource: str, identifiers: Iterable[str]) -> None:
        """Note that the kubelet was given ``identifiers`` of ``resource``."""
        with self.lock:
            now = self._monotonic()
            self._given.update({(resource, identifier): now for identifier in identifiers})

    def keep(self) -> None:
        """Note that the kubelet has started: what was held is held, though it does not tell yet.

        Until it has heard of its Pods from the API server its answers are empty, while their
        containers run.
        """
        with self.lock:
            self.held()
            now = self._monotonic()
            recent = (key for key, at in self._seen.items() if now - at <= _NOTICED_SECONDS)
            self._given.update(dict.fromkeys(recent, now))

    def held(self) -> dict[str, frozenset[str]]:
        """Return the identifiers in use by resource."""
        known = self._known()
        with self.lock:
            self._given = {
                key: at for key, at in self._given.items() if not _answered(key, at, known)
            }
            held = {resource: frozenset(ids) for resource, ids in known.held.items()}
            for resource, identifier in self._given:
                held[resource] = held.get(resource, frozenset()) | {identifier}
            now = self._monotonic()
            self._seen = {
                key: at for key, at in self._seen.items() if now - at <= _NOTICED_SECONDS
            } | {
                (resource, identifier): now for resource, ids in held.items() for identifier in ids
            }
        return held


def _answered(key: tuple[str, str], given_at: float, known: Known) -> bool:
    """Tell whether the kubelet's answer says what became of an identifier that was given."""
    if known.asked_at is None or known.asked_at < given_at:
        return False
    resource, identifier = key
    return identifier in known.held.get(resource, ()) or (
        known.asked_at - given_at >= UNLISTED_SECONDS
    )

"""What was decided and done lately, so that "why was this node closed at 14:03" has an answer.

It is kept in memory on the leader and is as long as it is: the log has everything.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from thermal import wallclock

Kind = Literal["state", "held_back", "written", "eviction", "storm"]

_LIMIT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One decision: ``at`` is wall time, ``reason`` a code, ``text`` for people."""

    at: str
    kind: Kind
    node: str | None
    reason: str | None
    text: str


class Journal:
    """The newest entries; every method may be called from any thread."""

    def __init__(self, limit: int = _LIMIT, wall: Callable[[], str] = wallclock.now) -> None:
        self._wall = wall
        self._lock = threading.Lock()
        self._entries: deque[Entry] = deque(maxlen=limit)

    def note(self, kind: Kind, node: str | None, text: str, *, reason: str | None = None) -> None:
        """Add an entry."""
        entry = Entry(at=self._wall(), kind=kind, node=node, reason=reason, text=text)
        with self._lock:
            self._entries.append(entry)

    def entries(self, *, node: str | None = None, limit: int = 200) -> list[Entry]:
        """Return the newest entries first, of one node or of all."""
        with self._lock:
            newest = list(reversed(self._entries))
        return list(islice((e for e in newest if node is None or e.node == node), limit))

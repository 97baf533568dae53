"""Reads warm nodes from their exporters where all others come from Prometheus.

A Prometheus that scrapes every 15 or 30 seconds does not see four seconds of an emergency, and
makes a debounce of 15 seconds one of 30. Few nodes are warm at a time, so the guard asks those
itself. A node that it cannot reach is asked of Prometheus, at once and for the next minute.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from thermal.source import Failure, Result, Source, Target

_PAUSE_SECONDS = 60.0


class WarmSource:
    """A Source of two: ``direct`` for warm nodes, ``fleet`` for the others. Used by one thread."""

    def __init__(
        self, *, direct: Source, fleet: Source, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._direct = direct
        self._fleet = fleet
        self._monotonic = monotonic
        self._unreachable_until: dict[str, float] = {}

    def read(self, targets: Sequence[Target]) -> Mapping[str, Result]:
        """Return one result per target, by node."""
        now = self._monotonic()
        self._unreachable_until = {
            node: until for node, until in self._unreachable_until.items() if until > now
        }
        near = [
            target
            for target in targets
            if target.warm and target.node not in self._unreachable_until
        ]
        found = dict(self._direct.read(near)) if near else {}
        for node, result in list(found.items()):
            if isinstance(result, Failure):
                self._unreachable_until[node] = now + _PAUSE_SECONDS
                del found[node]
        if len(found) == len(targets):
            return found
        # All of them, so that it knows the address of each; one query answers for the fleet.
        return {**self._fleet.read(targets), **found}

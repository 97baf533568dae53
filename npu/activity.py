"""Busy shares from counters of active time. Pure: time and readings are arguments."""

from collections.abc import Sequence
from dataclasses import dataclass

#: Two readings closer than this say the same: the counter has a resolution of a millisecond.
_SHORTEST_SECONDS = 0.2
#: More than this is not carried on: it would be a counter that jumped, not one read late.
_CARRIED_SECONDS = 1.0
_MILLI = 1000


@dataclass(slots=True)
class Activity:
    """The memory of one device's counters, one per core.

    A counter that is written in steps may advance by more than the time that passed. A core cannot
    be busier than all the time, so the surplus counts for the next reading and sums stay right.
    """

    _at: float | None = None
    _times: tuple[int, ...] = ()
    _carried: tuple[float, ...] = ()
    _ratios: tuple[float, ...] = ()

    def advance(self, milliseconds: Sequence[int], now: float) -> tuple[float, ...]:
        """Return the busy share of each core since the reading before.

        ``milliseconds`` are active times since boot, ``now`` is monotonic seconds. Empty at the
        first reading, and after one that cannot be compared: another number of cores, or a counter
        that went back because the driver was loaded anew.
        """
        times = tuple(milliseconds)
        at, before = self._at, self._times
        comparable = len(times) == len(before) and all(
            time >= old for time, old in zip(times, before, strict=True)
        )
        if at is not None and comparable and now - at < _SHORTEST_SECONDS:
            return self._ratios
        self._at, self._times, self._ratios = now, times, ()
        if at is None or not comparable:
            self._carried = (0.0,) * len(times)
            return ()
        passed = now - at
        busy = [
            (time - old) / _MILLI + surplus
            for time, old, surplus in zip(times, before, self._carried, strict=True)
        ]
        self._carried = tuple(min(max(0.0, each - passed), _CARRIED_SECONDS) for each in busy)
        self._ratios = tuple(min(1.0, each / passed) for each in busy)
        return self._ratios

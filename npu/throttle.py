"""Evidence that the kernel is already slowing the chip down because of heat.

A governed chip is held below its control target at half its speed: the temperature alone never
tells. Two things do: a cooling device other than a fan in force, or a busy NPU whose clock fell
below what it reached while cool. A clock that was always low is configuration, not heat.
"""

from dataclasses import dataclass, replace

_FALLEN_BELOW = 0.95
_BUSY_FROM = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """The memory: highest clock seen below warm since start, and since when evidence lasts."""

    highest_hertz: float | None = None
    since: float | None = None

    def seconds(self, now: float) -> float:
        """Return for how long the evidence has lasted, 0 without any."""
        return 0.0 if self.since is None else max(0.0, now - self.since)


def observe(
    throttle: Throttle,
    *,
    clock_hertz: float | None,
    busy_ratio: float | None,
    mitigating: bool | None,
    below_warm: bool,
    now: float,
) -> Throttle:
    """Take one look at clock, load and cooling devices; None is "not known".

    What is not known changes nothing: neither does it start evidence nor end it.
    """
    if below_warm:
        highest = throttle.highest_hertz
        if clock_hertz is not None:
            highest = max(clock_hertz, highest or clock_hertz)
        return Throttle(highest_hertz=highest)
    slowed = _slowed(throttle.highest_hertz, clock_hertz, busy_ratio)
    if mitigating or slowed:
        return throttle if throttle.since is not None else replace(throttle, since=now)
    if mitigating is None and slowed is None:
        return throttle
    return replace(throttle, since=None)


def _slowed(
    highest_hertz: float | None, clock_hertz: float | None, busy_ratio: float | None
) -> bool | None:
    if highest_hertz is None or clock_hertz is None or busy_ratio is None:
        return None
    return busy_ratio >= _BUSY_FROM and clock_hertz < _FALLEN_BELOW * highest_hertz

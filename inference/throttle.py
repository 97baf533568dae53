"""When a service runs at half its speed because the NPU is hot: pure.

The platform's guard keeps new work from a hot board and may evict; a service that slows down before
that keeps its place and its NPU. Temperatures are in degrees Celsius, times monotonic seconds.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Half speed from ``enter_celsius`` on, until below ``leave_celsius`` for ``hold_seconds``."""

    enter_celsius: float = 76.0
    leave_celsius: float = 70.0
    hold_seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """Whether the service runs at half speed, and since when it has been cool meanwhile."""

    active: bool = False
    cool_since: float | None = None


def advance(before: Throttle, celsius: float | None, now: float, limits: Limits) -> Throttle:
    """Return the state after a reading.

    Without one everything stays: a sensor that cannot be read says nothing about the NPU.
    """
    if celsius is None:
        return before if before.cool_since is None else Throttle(active=before.active)
    if celsius >= limits.enter_celsius:
        return Throttle(active=True)
    if not before.active:
        return before
    if celsius >= limits.leave_celsius:
        return Throttle(active=True)
    since = now if before.cool_since is None else before.cool_since
    if now - since >= limits.hold_seconds:
        return Throttle()
    return Throttle(active=True, cool_since=since)


def allowed(workers: int, *, throttled: bool) -> int:
    """Return how many workers may run; one alone goes on and rests as long as it works."""
    return -(-workers // 2) if throttled else workers

"""How many slots a device may have in use and on offer while it is warm. Pure.

Concurrency is lowered before anything else is done about heat: the node keeps working and nobody is
moved. It falls quickly and comes back slowly, because a heat sink needs minutes to cool. Only free
slots follow the limit, and a device that is one slot never loses it below ``critical``.

The limit follows the temperature, not the name of the state: it falls from half-way between warm
and hot on, rises below the temperature at which warm is left, and stays where it is between the
two. A board so finds the number of slots it can cool and keeps it. Falling through all of warm was
tried in the closed loop (``docs/thermal-closed-loop.md``): such a board swings between one slot
and too many, does a fifth less work and gets hot all the same.
"""

from dataclasses import dataclass, replace

from npu.heat import OVERHEATED, Heat, Machine
from npu.thresholds import Thresholds

_STOPPED = frozenset({Heat.CRITICAL, Heat.EMERGENCY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds per slot, down while warm and up while recovering or cool."""

    lower_every_seconds: float = 30.0
    raise_every_seconds: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The limit of one device.

    ``slots`` is None where nothing is limited. ``state`` is what the limit last followed;
    ``changed_at`` the monotonic time of the last step, None before the first.
    """

    slots: int | None = None
    state: Heat = Heat.UNKNOWN
    changed_at: float | None = None

    @property
    def reason(self) -> str:
        """The reason code of slots that are withdrawn for this limit."""
        return f"heat_{Heat.RECOVERING if self.state is Heat.COOL else self.state}"


def advance(
    limit: Limit,
    machine: Machine,
    *,
    slots: int,
    limits: Thresholds,
    pace: Pace,
    now: float,
) -> Limit:
    """Return the limit of a device with ``slots`` slots after a reading was taken.

    ==================== ===================================================
    state                limit
    ==================== ===================================================
    cool, warm,          at least 1; one more per ``raise_every_seconds`` below
    recovering           the leaving temperature of warm, one less per
                         ``lower_every_seconds`` from :func:`crowded_celsius` on
    hot                  1
    critical, worse      0
    unknown              unchanged; at most 1 once a reading is ``lost``
    just started         none below warm, 1 from warm, 0 from critical on
    ==================== ===================================================

    A plugin that has just started does not know what was withdrawn before: a warm device begins
    with one slot, and cools its way up.
    """
    current = slots if limit.slots is None else min(limit.slots, slots)
    state = machine.state
    if state is Heat.UNKNOWN:
        target = min(current, _blind(machine, slots, limits, now))
    elif state in _STOPPED:
        target = 0
    elif state is Heat.HOT:
        target = 1
    else:
        if limit.state in OVERHEATED:
            # Time in the state that was left does not count.
            limit = replace(limit, changed_at=now)
        target = 1
        if current > 0:
            target = _stepped(limit, machine.celsius, current, slots, limits, pace, now)
    target = min(target, slots)
    return Limit(
        slots=None if target == slots else target,
        state=state,
        changed_at=now if target != current else limit.changed_at,
    )


def crowded_celsius(limits: Thresholds) -> float:
    """Return where fewer slots should be in use: half-way between warm and hot."""
    return (limits.warm_celsius + limits.hot_celsius) / 2


def _stepped(
    limit: Limit,
    celsius: float | None,
    current: int,
    slots: int,
    limits: Thresholds,
    pace: Pace,
    now: float,
) -> int:
    """Return the limit one step nearer to what the temperature allows."""
    if celsius is None:
        return current
    if celsius >= crowded_celsius(limits):
        return current - (current > 1 and _due(limit, pace.lower_every_seconds, now))
    if celsius < limits.warm_leave_celsius:
        return current + (current < slots and _due(limit, pace.raise_every_seconds, now))
    return current


def _due(limit: Limit, every_seconds: float, now: float) -> bool:
    return limit.changed_at is None or now - limit.changed_at >= every_seconds


def _blind(machine: Machine, slots: int, limits: Thresholds, now: float) -> int:
    """Return the most slots that may be there while the heat of a device is not known."""
    if machine.missing_seconds(now) >= limits.timing.lost_seconds:
        return 1
    celsius = machine.celsius
    if not machine.starting or celsius is None:
        return slots
    if celsius >= limits.critical_celsius:
        return 0
    return 1 if celsius >= limits.warm_celsius else slots

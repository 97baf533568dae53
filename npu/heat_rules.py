"""The table of the heat machine: states, conditions, and which leads where.

Nothing else decides. ``docs/thermal.md`` shows the same table, generated from this one.
"""

from dataclasses import dataclass
from enum import StrEnum


class Heat(StrEnum):
    """States; the order of definition is the order of severity (``unknown`` aside)."""

    UNKNOWN = "unknown"
    COOL = "cool"
    WARM = "warm"
    RECOVERING = "recovering"
    HOT = "hot"
    CRITICAL = "critical"
    EMERGENCY = "emergency"


_SEVERITY = {state: rank for rank, state in enumerate(Heat)}

#: States in which a device must not get new work.
OVERHEATED = frozenset({Heat.HOT, Heat.CRITICAL, Heat.EMERGENCY})


def severity(state: Heat) -> int:
    """Return a rank to compare states by; ``unknown`` ranks lowest."""
    return _SEVERITY[state]


class Reason(StrEnum):
    """Why a transition happened; the codes appear in logs and events."""

    TEMPERATURE = "temperature"
    THROTTLED = "throttled"
    SATURATED = "saturated"
    COOLED = "cooled"
    CLEAN = "clean"
    NO_DATA = "no_data"
    DATA = "data"


class Condition(StrEnum):
    """What the rules look at; each is evaluated at every valid reading."""

    EMERGENCY = "two readings in a row at or above emergency"
    CRITICAL = "at or above critical"
    SATURATED = "throttled and at or above saturated"
    HOT = "at or above hot"
    THROTTLED = "throttled and at or above warm"
    WARM = "at or above warm"
    NOT_WARM = "below warm"
    BELOW_WARM = "below the leaving temperature of warm"
    BELOW_HOT = "below the leaving temperature of hot"
    BELOW_CRITICAL = "below the leaving temperature of critical"
    RESUMED = "enough valid readings after none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row: from any of ``sources`` to ``target`` when ``when`` held for ``lasting`` seconds.

    ``lasting`` names a field of Timing, None means at once. ``held`` rows wait for the hold of the
    current state. ``before`` restricts leaving ``unknown`` to what was known before; in any other
    state it is that state.
    """

    sources: frozenset[Heat]
    target: Heat
    when: Condition
    reason: Reason
    lasting: str | None = None
    held: bool = False
    before: frozenset[Heat] | None = None


def _from(*states: Heat) -> frozenset[Heat]:
    return frozenset(states)


_U, _C, _W, _R = Heat.UNKNOWN, Heat.COOL, Heat.WARM, Heat.RECOVERING
_H, _K, _E = Heat.HOT, Heat.CRITICAL, Heat.EMERGENCY
#: Whoever was critical before it went blind is not called hot on the first warm reading.
_NOT_ABOVE_HOT = _from(_C, _W, _R, _H)

#: The machine. The first row that applies wins; more than one step may follow on later readings.
RULES: tuple[Rule, ...] = (
    # Up.
    Rule(
        sources=_from(_U, _C, _W, _R, _H, _K),
        target=_E,
        when=Condition.EMERGENCY,
        reason=Reason.TEMPERATURE,
    ),
    Rule(
        sources=_from(_U, _C, _W, _R, _H),
        target=_K,
        when=Condition.CRITICAL,
        lasting="critical_enter_seconds",
        reason=Reason.TEMPERATURE,
    ),
    Rule(
        sources=_from(_H),
        target=_K,
        when=Condition.SATURATED,
        lasting="saturated_seconds",
        reason=Reason.SATURATED,
    ),
    Rule(
        sources=_from(_U, _C, _W, _R),
        target=_H,
        when=Condition.HOT,
        lasting="hot_enter_seconds",
        before=_NOT_ABOVE_HOT,
        reason=Reason.TEMPERATURE,
    ),
    Rule(
        sources=_from(_U, _C, _W, _R),
        target=_H,
        when=Condition.THROTTLED,
        before=_NOT_ABOVE_HOT,
        reason=Reason.THROTTLED,
    ),
    Rule(sources=_from(_C), target=_W, when=Condition.WARM, reason=Reason.TEMPERATURE),
    # Down.
    Rule(
        sources=_from(_K, _E),
        target=_H,
        when=Condition.BELOW_CRITICAL,
        held=True,
        reason=Reason.COOLED,
    ),
    Rule(
        sources=_from(_H),
        target=_R,
        when=Condition.BELOW_HOT,
        lasting="hot_leave_seconds",
        held=True,
        reason=Reason.COOLED,
    ),
    Rule(sources=_from(_R), target=_C, when=Condition.NOT_WARM, held=True, reason=Reason.CLEAN),
    Rule(sources=_from(_R), target=_W, when=Condition.WARM, held=True, reason=Reason.CLEAN),
    Rule(sources=_from(_W), target=_C, when=Condition.BELOW_WARM, reason=Reason.COOLED),
    # Back from unknown: never calmer than what was known before.
    Rule(
        sources=_from(_U),
        target=_K,
        when=Condition.RESUMED,
        before=_from(_K, _E),
        reason=Reason.DATA,
    ),
    Rule(
        sources=_from(_U),
        target=_H,
        when=Condition.RESUMED,
        before=_from(_H),
        reason=Reason.DATA,
    ),
    Rule(
        sources=_from(_U),
        target=_R,
        when=Condition.RESUMED,
        before=_from(_R),
        reason=Reason.DATA,
    ),
    Rule(
        sources=_from(_U),
        target=_W,
        when=Condition.RESUMED,
        before=_from(_W),
        reason=Reason.DATA,
    ),
    Rule(
        sources=_from(_U),
        target=_C,
        when=Condition.RESUMED,
        before=_from(_C),
        reason=Reason.DATA,
    ),
)

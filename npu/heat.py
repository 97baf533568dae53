"""The heat of one device: a state machine over readings, the same in plugin and guard.

The machine is the table :data:`npu.heat_rules.RULES` and nothing else decides. It is pure: a
machine, a reading and a monotonic time give the next machine. What it is built to keep:

* going up is a matter of seconds, going down of minutes: a die cools by 13 °C within 30 s of its
  load being taken away while the heat sink is still hot, so temperature alone is no recovery;
* every entry into ``hot`` is held, and entries in quick succession are held longer;
* no reading is neither hot nor cool: it is ``unknown``, and what was before is remembered.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from npu import signal_filter, throttle
from npu.heat_rules import OVERHEATED, RULES, Condition, Heat, Reason, Rule, severity
from npu.signal_filter import Signal, Verdict
from npu.thresholds import Thresholds, Timing
from npu.throttle import Throttle

__all__ = [
    "OVERHEATED",
    "RULES",
    "STARTING_READINGS",
    "Condition",
    "Heat",
    "Machine",
    "Reading",
    "Reason",
    "Rule",
    "Transition",
    "hold_seconds",
    "severity",
    "start",
    "step",
]

#: Valid readings a machine needs before it leaves the ``unknown`` it starts in.
STARTING_READINGS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was measured at one moment; None is "not known".

    ``mitigating`` tells whether a cooling device other than a fan is in force.
    """

    celsius: float | None = None
    clock_hertz: float | None = None
    busy_ratio: float | None = None
    mitigating: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A change of state; ``celsius`` is the filtered temperature, None without any."""

    source: Heat
    target: Heat
    reason: Reason
    celsius: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Everything that is known about one device. Times are monotonic seconds.

    ``before`` is the last known state while ``state`` is unknown. ``starting`` is true until the
    first :data:`STARTING_READINGS`. ``hot_entries`` are the times ``hot`` or worse was entered from
    below, within the window as of the last transition.
    """

    state: Heat
    since: float
    before: Heat = Heat.COOL
    starting: bool = False
    hold_until: float = 0.0
    hot_entries: tuple[float, ...] = ()
    valid_at: float
    resumed_at: float | None = None
    readings: int = 0
    verdict: Verdict | None = None
    signal: Signal = field(default_factory=Signal)
    throttle: Throttle = field(default_factory=Throttle)
    true_since: Mapping[Condition, float] = field(default_factory=dict)

    @property
    def celsius(self) -> float | None:
        """The filtered temperature, None before the first valid reading."""
        return self.signal.smoothed_celsius

    @property
    def known(self) -> Heat:
        """The state, or the last known one where it is unknown."""
        return self.before if self.state is Heat.UNKNOWN else self.state

    def missing_seconds(self, now: float) -> float:
        """Return the age of the last valid reading, of the start where there was none."""
        return max(0.0, now - self.valid_at)


def start(now: float, *, before: Heat = Heat.COOL, hot_entries: int = 0) -> Machine:
    """Return a machine that knows nothing yet.

    After a restart, ``before`` and ``hot_entries`` carry over what was recorded: an overheated
    device comes back as it was, with its hold restarted, after three valid readings.
    """
    known = Heat.COOL if before is Heat.UNKNOWN else before
    return Machine(
        state=Heat.UNKNOWN,
        since=now,
        before=known,
        starting=True,
        valid_at=now,
        hot_entries=(now,) * hot_entries,
    )


def step(
    machine: Machine, reading: Reading, now: float, limits: Thresholds
) -> tuple[Machine, Transition | None]:
    """Advance by one reading made at monotonic time ``now``; at most one transition happens."""
    machine = _take(machine, reading, now, limits)
    if machine.valid_at < now or machine.readings == 0:
        return _without_reading(machine, now, limits.timing)
    facts = _facts(machine, now, limits)
    machine = replace(
        machine,
        true_since={
            condition: machine.true_since.get(condition, now)
            for condition, holds in facts.items()
            if holds
        },
    )
    for rule in RULES:
        if _applies(rule, machine, now, limits.timing):
            return _enter(machine, rule, now, limits.timing)
    return machine, None


def hold_seconds(entries: int, timing: Timing) -> float:
    """Return how long ``hot`` is held after that many entries within the window.

    The first two are held for the plain time, each further one for twice as long as the one before.
    """
    doublings = min(max(0, entries - 2), 32)
    return min(timing.hot_hold_maximum_seconds, timing.hot_hold_seconds * 2.0**doublings)


def _take(machine: Machine, reading: Reading, now: float, limits: Thresholds) -> Machine:
    """Filter the reading; a machine whose ``valid_at`` is ``now`` has got a valid one."""
    if reading.celsius is None:
        return replace(machine, verdict=None)
    signal, verdict = signal_filter.accept(
        machine.signal, reading.celsius, now, maximum_celsius=limits.maximum_plausible_celsius
    )
    if verdict != "accepted" or signal.smoothed_celsius is None:
        return replace(machine, signal=signal, verdict=verdict)
    return replace(
        machine,
        signal=signal,
        verdict=verdict,
        valid_at=now,
        resumed_at=now if machine.resumed_at is None else machine.resumed_at,
        readings=machine.readings + 1,
        throttle=throttle.observe(
            machine.throttle,
            clock_hertz=reading.clock_hertz if limits.clock_evidence else None,
            busy_ratio=reading.busy_ratio,
            mitigating=reading.mitigating,
            below_warm=signal.smoothed_celsius < limits.warm_celsius,
            now=now,
        ),
    )


def _without_reading(
    machine: Machine, now: float, timing: Timing
) -> tuple[Machine, Transition | None]:
    if machine.missing_seconds(now) < timing.missing_seconds:
        return machine, None
    blind = replace(machine, resumed_at=None, true_since={}, throttle=_unproven(machine.throttle))
    if machine.state is Heat.UNKNOWN:
        return blind, None
    transition = Transition(
        source=machine.state, target=Heat.UNKNOWN, reason=Reason.NO_DATA, celsius=machine.celsius
    )
    return (
        replace(blind, state=Heat.UNKNOWN, before=machine.state, since=now, starting=False),
        transition,
    )


def _unproven(seen: Throttle) -> Throttle:
    return Throttle(highest_hertz=seen.highest_hertz)


def _facts(machine: Machine, now: float, limits: Thresholds) -> dict[Condition, bool]:
    celsius = machine.signal.smoothed_celsius
    if celsius is None:
        return {}
    throttled = machine.throttle.seconds(now) >= limits.timing.throttle_seconds
    last = machine.signal.raw[-2:]
    return {
        Condition.EMERGENCY: len(last) > 1 and min(last) >= limits.emergency_celsius,
        Condition.CRITICAL: celsius >= limits.critical_celsius,
        Condition.SATURATED: throttled and celsius >= limits.saturated_celsius,
        Condition.HOT: celsius >= limits.hot_celsius,
        Condition.THROTTLED: throttled and celsius >= limits.warm_celsius,
        Condition.WARM: celsius >= limits.warm_celsius,
        Condition.NOT_WARM: celsius < limits.warm_celsius,
        Condition.BELOW_WARM: celsius < limits.warm_leave_celsius,
        Condition.BELOW_HOT: celsius < limits.hot_leave_celsius,
        Condition.BELOW_CRITICAL: celsius < limits.critical_leave_celsius,
        Condition.RESUMED: _resumed(machine, now, limits.timing),
    }


def _resumed(machine: Machine, now: float, timing: Timing) -> bool:
    if machine.starting:
        return machine.readings >= STARTING_READINGS
    return machine.resumed_at is not None and now - machine.resumed_at >= timing.lost_leave_seconds


def _applies(rule: Rule, machine: Machine, now: float, timing: Timing) -> bool:
    since = machine.true_since.get(rule.when)
    if machine.state not in rule.sources or since is None:
        return False
    if rule.before is not None and machine.before not in rule.before:
        return False
    if rule.held and now < machine.hold_until:
        return False
    return rule.lasting is None or now - since >= getattr(timing, rule.lasting)


def _enter(machine: Machine, rule: Rule, now: float, timing: Timing) -> tuple[Machine, Transition]:
    entries = tuple(at for at in machine.hot_entries if now - at < timing.hot_window_seconds)
    if rule.target in OVERHEATED and machine.known not in OVERHEATED:
        entries = (*entries, now)
    holds = {
        Heat.HOT: hold_seconds(len(entries), timing),
        Heat.CRITICAL: timing.critical_hold_seconds,
        Heat.EMERGENCY: timing.critical_hold_seconds,
        Heat.RECOVERING: timing.recovering_seconds,
    }
    entered = replace(
        machine,
        state=rule.target,
        since=now,
        before=rule.target,
        starting=False,
        hold_until=now + holds.get(rule.target, 0.0),
        hot_entries=entries,
    )
    return entered, Transition(
        source=machine.state, target=rule.target, reason=rule.reason, celsius=machine.celsius
    )

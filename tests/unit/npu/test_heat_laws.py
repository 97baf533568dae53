"""Laws of the heat machine that hold for every sequence of readings."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from npu.heat import OVERHEATED, Heat, Machine, Reading, Transition, severity, start, step
from npu.thresholds import Settings

LIMITS = Settings().resolve(model="rk3588")
INTERVAL = 5.0
CELSIUS = st.floats(-40, 160) | st.floats(60, 105) | st.sampled_from([-275.0, float("nan"), 1e9])
READINGS = st.lists(st.none() | CELSIUS, max_size=120)


def fed(
    readings: Sequence[Reading], *, now: float = 1000.0, intervals: Sequence[float] = ()
) -> list[tuple[float, Machine, Transition | None]]:
    """Return time, machine and transition after each reading."""
    machine, seen = start(now), []
    for index, reading in enumerate(readings):
        now += intervals[index % len(intervals)] if intervals else INTERVAL
        machine, transition = step(machine, reading, now, LIMITS)
        seen.append((now, machine, transition))
    return seen


@given(READINGS)
def test_nothing_is_overheated_without_a_valid_reading(values: list[float | None]) -> None:
    """Every way into a state that closes a node is at a moment with an accepted reading."""
    for now, machine, transition in fed([Reading(celsius=value) for value in values]):
        if transition is not None and transition.target in OVERHEATED:
            assert machine.verdict == "accepted"
            assert machine.valid_at == now
            assert transition.celsius is not None


@given(READINGS, st.lists(st.floats(0.1, 30), min_size=1, max_size=7))
def test_nothing_leaves_a_hold_but_upwards(
    values: list[float | None], intervals: list[float]
) -> None:
    """From hot to open again takes the hold, whatever the readings and their distance."""
    closed_at = None
    readings = [Reading(celsius=value) for value in values]
    for now, machine, transition in fed(readings, intervals=intervals):
        if transition is None or transition.target is Heat.UNKNOWN:
            continue
        if transition.target in OVERHEATED:
            closed_at = now if closed_at is None else closed_at
        elif closed_at is not None:
            assert now - closed_at >= LIMITS.timing.hot_hold_seconds
            assert machine.known not in OVERHEATED
            closed_at = None


@given(st.lists(st.floats(40, 99), min_size=1, max_size=40), st.floats(0, 15))
@settings(max_examples=60)
def test_the_hotter_of_two_devices_is_closed_first(base: list[float], more: float) -> None:
    """A device that is hotter all the time is never overheated later than the cooler one."""
    values = [value for value in base for _ in range(3)]

    def first(extra: float) -> int:
        for index, (_, machine, _) in enumerate(
            fed([Reading(celsius=value + extra) for value in values])
        ):
            if machine.state in OVERHEATED:
                return index
        return len(values)

    assert first(more) <= first(0.0)


@given(READINGS, st.floats(-1e6, 0.0), st.integers(0, 119))
def test_clock_that_jumps_back_does_no_harm(
    values: list[float | None], jump: float, at: int
) -> None:
    """Ages and holds are never negative, and nothing is raised."""
    machine, now = start(1000.0), 1000.0
    for index, value in enumerate(values):
        now += INTERVAL + (jump if index == at else 0.0)
        machine, transition = step(machine, Reading(celsius=value), now, LIMITS)
        assert machine.missing_seconds(now) >= 0.0
        if transition is not None and transition.target in OVERHEATED:
            assert machine.celsius is not None
            assert machine.celsius >= LIMITS.warm_celsius


@given(st.floats(1e8, 1e9), st.lists(st.floats(60, 79), min_size=20, max_size=60))
@settings(max_examples=50)
def test_clock_that_is_always_low_is_no_throttling(hertz: float, values: list[float]) -> None:
    """Somebody configured it: a busy board below 80 degrees stays open."""
    readings = [
        Reading(celsius=value, clock_hertz=hertz, busy_ratio=1.0) for value in [45.0] * 5 + values
    ]

    assert all(machine.state not in OVERHEATED for _, machine, _ in fed(readings * 4))


@pytest.mark.parametrize(("evidence", "expected"), [(True, Heat.HOT), (False, Heat.WARM)])
def test_clock_lowered_by_the_plugin_is_no_evidence(*, evidence: bool, expected: Heat) -> None:
    """Where the plugin clamps the clock of a warm device, only cooling devices tell."""
    limits = Settings(clock_evidence=evidence).resolve(model="rk3588")
    machine, now = start(0.0), 0.0
    for celsius, hertz in [(50.0, 1e9)] * 6 + [(66.0, 1e9)] * 6 + [(75.0, 6e8)] * 40:
        now += INTERVAL
        reading = Reading(celsius=celsius, clock_hertz=hertz, busy_ratio=1.0)
        machine, _ = step(machine, reading, now, limits)

    assert machine.state is expected


@given(READINGS)
@example([88.0, 88.0, 83.0, None, None, None, 58.0, None, None, 79.0])
def test_unknown_is_never_worse_or_better_than_what_was_known(values: list[float | None]) -> None:
    """A device that went blind while overheated comes back overheated, or worse."""
    before: Heat | None = None
    for _, machine, transition in fed([Reading(celsius=value) for value in values]):
        if transition is None:
            continue
        if transition.target is Heat.UNKNOWN:
            before = machine.before
        elif transition.source is Heat.UNKNOWN and before is not None:
            floor = Heat.CRITICAL if before is Heat.EMERGENCY else before
            assert severity(transition.target) >= severity(floor)

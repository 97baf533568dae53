"""The heat machine of one device, with the default times."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu.heat import (
    OVERHEATED,
    RULES,
    Condition,
    Heat,
    Machine,
    Reading,
    Reason,
    Transition,
    hold_seconds,
    severity,
    start,
    step,
)
from npu.thresholds import Settings, Timing

LIMITS = Settings().resolve(model="rk3588")
INTERVAL = 5.0


class _Run:
    """Feeds a machine every five seconds and keeps what happened."""

    def __init__(self, machine: Machine | None = None, *, now: float = 1000.0) -> None:
        self.now = now
        self.machine = start(now) if machine is None else machine
        self.log: list[tuple[float, Transition]] = []

    def feed(self, readings: Iterable[float | Reading | None]) -> "_Run":
        for value in readings:
            self.now += INTERVAL
            reading = value if isinstance(value, Reading) else Reading(celsius=value)
            self.machine, transition = step(self.machine, reading, self.now, LIMITS)
            if transition is not None:
                self.log.append((self.now, transition))
        return self

    def hold(self, value: float | Reading | None, seconds: float) -> "_Run":
        return self.feed([value] * int(seconds / INTERVAL))

    @property
    def state(self) -> Heat:
        return self.machine.state

    @property
    def path(self) -> list[Heat]:
        return [transition.target for _, transition in self.log]


def cool() -> _Run:
    return _Run().hold(45.0, 60)


def hot() -> _Run:
    return cool().hold(66.0, 30).hold(83.0, 60)


def test_three_readings_make_a_known_state() -> None:
    """A machine says nothing before its third valid reading."""
    run = _Run().feed([45.0, 45.0])

    assert run.state is Heat.UNKNOWN
    assert run.feed([45.0]).state is Heat.COOL


def test_warm_is_entered_and_left_with_hysteresis() -> None:
    """Warm at 72, and 70 is not yet cool again."""
    run = cool().hold(60.0, 15).hold(73.0, 60)

    assert run.state is Heat.WARM
    assert run.hold(70.0, 120).state is Heat.WARM
    assert run.hold(67.0, 60).state is Heat.COOL


def test_hot_needs_fifteen_seconds() -> None:
    """A short peak above 80 is warm, a lasting one is hot."""
    run = cool().hold(62.0, 20).hold(82.0, 20).hold(60.0, 60)

    assert Heat.HOT not in run.path
    assert hot().state is Heat.HOT


def test_hot_is_held_although_the_die_cools_at_once() -> None:
    """Load removed: the die is cool in seconds, the state stays hot for the hold."""
    run = hot()
    entered = run.log[-1][0]
    run.hold(60.0, 400)

    left = next(at for at, transition in run.log if transition.target is Heat.RECOVERING)
    assert left - entered >= 180


def test_recovery_lasts_ten_minutes() -> None:
    """Cool comes ten minutes after hot was left."""
    run = hot().hold(55.0, 1200)

    times = {transition.target: at for at, transition in run.log}
    assert run.state is Heat.COOL
    assert times[Heat.COOL] - times[Heat.RECOVERING] >= 600


def test_reentry_counts_and_lengthens_the_third_hold() -> None:
    """Hot three times within an hour: held for 180, 180 and 360 seconds."""
    run = cool()
    for _ in range(3):
        run.hold(66.0, 30).hold(83.0, 60).hold(55.0, 420)

    entered = [at for at, transition in run.log if transition.target is Heat.HOT]
    left = [at for at, transition in run.log if transition.target is Heat.RECOVERING]
    held = [end - begin for begin, end in zip(entered, left, strict=True)]
    assert [180 <= held[0] < 240, 180 <= held[1] < 240, 360 <= held[2] < 420] == [True, True, True]


def test_hold_is_capped() -> None:
    """The hold doubles to a cap of twelve minutes."""
    assert [hold_seconds(n, Timing()) for n in range(1, 7)] == [180, 180, 360, 720, 720, 720]


def test_throttling_is_hot_below_eighty() -> None:
    """A governed board at 75 °C whose mitigation lasts a minute is hot."""
    run = cool().hold(60.0, 15).hold(Reading(celsius=75.0, mitigating=True), 120)

    assert run.state is Heat.HOT
    assert run.log[-1][1].reason is Reason.THROTTLED


def test_saturated_mitigation_is_critical() -> None:
    """Ten minutes throttled at the control target is as bad as above it."""
    run = cool().hold(65.0, 15).hold(Reading(celsius=85.0, mitigating=True), 800)

    assert run.state is Heat.CRITICAL
    assert run.log[-1][1].reason is Reason.SATURATED


def test_critical_falls_back_to_hot_after_its_hold() -> None:
    """Critical ends below 75 after 180 s, and never skips hot."""
    run = hot().hold(91.0, 60).hold(60.0, 300)

    (entered, _), (left, transition) = run.log[-2:]
    assert run.path[-2:] == [Heat.CRITICAL, Heat.HOT]
    assert transition.reason is Reason.COOLED
    assert 180 <= left - entered < 190


def test_emergency_needs_two_readings() -> None:
    """One reading of 101 is nothing, two in a row stop the device."""
    run = hot().feed([101.0, 84.0])

    assert run.state is Heat.HOT
    assert run.feed([101.0, 101.0]).state is Heat.EMERGENCY


def test_missing_data_is_unknown_and_not_cool() -> None:
    """Fifteen seconds without a reading: unknown, and hot is remembered."""
    run = hot().feed([None, None])

    assert run.state is Heat.HOT
    run.feed([None])
    assert (run.state, run.machine.before) == (Heat.UNKNOWN, Heat.HOT)


def test_a_blinded_hot_device_comes_back_hot() -> None:
    """Data lost while hot and returned cool: hot again, with its hold."""
    run = hot().hold(None, 600).hold(60.0, 65)

    assert run.state is Heat.HOT
    assert run.hold(50.0, 170).state is Heat.HOT
    assert run.hold(50.0, 30).state is Heat.RECOVERING


def test_impossible_readings_count_as_missing() -> None:
    """A placeholder of 125 °C makes the device unknown, never an emergency."""
    assert cool().hold(125.0, 60).state is Heat.UNKNOWN


def test_restart_adopts_what_was_recorded() -> None:
    """After a restart a device that was hot stays hot for its hold, entries included."""
    run = _Run(start(1000.0, before=Heat.HOT, hot_entries=3)).hold(50.0, 15)

    assert run.state is Heat.HOT
    assert run.machine.hold_until - run.now == 360


def test_restart_does_not_make_a_critical_device_better() -> None:
    """Adopted as critical it stays critical for its hold, then hot."""
    run = _Run(start(1000.0, before=Heat.CRITICAL)).hold(60.0, 300)

    assert run.path == [Heat.CRITICAL, Heat.HOT]
    assert run.log[1][0] - run.log[0][0] >= 180


def test_starting_unknown_is_not_a_memory() -> None:
    """A recorded "unknown" is no state to go back to."""
    assert start(0.0, before=Heat.UNKNOWN).before is Heat.COOL


def test_every_state_but_unknown_has_a_way_up_and_a_way_down() -> None:
    """The table leaves no state without a row that ends it."""
    for state in Heat:
        targets = {rule.target for rule in RULES if state in rule.sources}
        assert targets, state
        if state is not Heat.EMERGENCY:
            assert Heat.EMERGENCY in targets


def test_every_condition_is_used() -> None:
    """No condition is computed for nothing."""
    assert set(Condition) == {rule.when for rule in RULES}


#: Stretches of one temperature, so that the machine gets to all of its states; None is no reading.
stretches = st.lists(
    st.tuples(
        st.one_of(
            st.none(),
            st.sampled_from([45.0, 62.0, 69.0, 75.0, 82.0, 92.0, 103.0]),
            st.floats(min_value=20, max_value=110),
        ),
        st.integers(min_value=1, max_value=50),
    ),
    max_size=12,
)
noise = stretches.map(lambda parts: [value for value, count in parts for _ in range(count)])


@given(noise)
@settings(deadline=None)
def test_never_leaves_hot_before_its_hold(readings: list[float | None]) -> None:
    """Whatever is read, an overheated device is not released within the hold."""
    run = _Run()
    overheated_at: float | None = None
    for value in readings:
        before = run.machine.known
        run.feed([value])
        after = run.machine.known
        if after is Heat.HOT and (before is not Heat.HOT or run.machine.since == run.now):
            overheated_at = run.now
        if before in OVERHEATED and after not in OVERHEATED:
            assert after is Heat.RECOVERING
            assert overheated_at is not None
            assert run.now - overheated_at >= 180


@given(noise, st.integers(min_value=1, max_value=50))
@settings(deadline=None)
def test_missing_readings_never_lower_the_state(readings: list[float | None], gap: int) -> None:
    """No reading is not cool: what is known stays as it is however long data is missing."""
    run = _Run().feed(readings)
    known = run.machine.known

    run.feed([None] * gap)

    assert run.machine.known is known


@given(st.lists(st.floats(min_value=0, max_value=8), min_size=1, max_size=100))
@settings(deadline=None)
def test_rising_temperature_never_flaps(rises: list[float]) -> None:
    """While it only gets warmer, the state only gets worse."""
    celsius = 40.0
    run = _Run().hold(celsius, 30)
    for rise in rises:
        celsius = min(115.0, celsius + rise)
        run.feed([celsius])

    ranks = [severity(state) for state in run.path]
    assert ranks == sorted(ranks)
    assert Heat.RECOVERING not in run.path


@given(noise)
@settings(deadline=None)
def test_every_transition_is_a_row_of_the_table(readings: list[float | None]) -> None:
    """Nothing but the table, and losing data, changes the state."""
    pairs = {(source, rule.target) for rule in RULES for source in rule.sources}
    pairs |= {(state, Heat.UNKNOWN) for state in Heat}

    run = _Run().feed(readings)

    assert {(t.source, t.target) for _, t in run.log} <= pairs


@pytest.mark.parametrize("interval", [2.0, 5.0, 15.0])
def test_sampling_interval_does_not_change_the_outcome(interval: float) -> None:
    """A board that heats up to 84 °C is hot at any interval in use."""
    machine, now = start(0.0), 0.0
    while now < 600:
        now += interval
        celsius = min(84.0, 45.0 + now / 4)
        machine, _ = step(machine, Reading(celsius=celsius), now, LIMITS)

    assert machine.state is Heat.HOT

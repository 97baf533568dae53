"""The limit falls quickly, comes back slowly, and never below what the state allows."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu import heat
from npu.heat import Heat, Machine, Reading
from npu.signal_filter import Signal
from npu.thresholds import Settings
from plugin.limiter import Limit, Pace, advance, crowded_celsius

LIMITS = Settings().resolve(model="rk3588")
PACE = Pace()
INTERVAL = 5.0
TYPICAL = {Heat.COOL: 45.0, Heat.WARM: 78.0, Heat.RECOVERING: 60.0, Heat.HOT: 82.0}


class Device:
    """A device with slots whose heat a test sets, seen every five seconds."""

    def __init__(self, slots: int = 4) -> None:
        self.now = 1000.0
        self.slots = slots
        self.limit = Limit()
        self.machine = heat.start(self.now)

    def at(self, celsius: float | None, seconds: float) -> list[int]:
        """Return the limits of all readings of a time at one temperature."""
        seen = []
        for _ in range(int(seconds / INTERVAL)):
            self.now += INTERVAL
            reading = Reading(celsius=celsius)
            self.machine, _ = heat.step(self.machine, reading, self.now, LIMITS)
            seen.append(self.follow())
        return seen

    def be(self, state: Heat, seconds: float, celsius: float | None = None) -> list[int]:
        """Return the limits of all looks at a device that is in ``state`` for this long."""
        signal = Signal(smoothed_celsius=TYPICAL.get(state) if celsius is None else celsius)
        seen = []
        for _ in range(int(seconds / INTERVAL)):
            self.now += INTERVAL
            self.machine = Machine(
                state=state,
                since=self.now,
                valid_at=self.now,
                before=Heat.COOL,
                readings=9,
                signal=signal,
            )
            seen.append(self.follow())
        return seen

    def follow(self) -> int:
        """Advance the limit by one look and return it as a number."""
        self.limit = advance(
            self.limit,
            self.machine,
            slots=self.slots,
            limits=LIMITS,
            pace=PACE,
            now=self.now,
        )
        return self.slots if self.limit.slots is None else self.limit.slots


def changes(values: Iterable[int]) -> list[int]:
    """Return the values without repetitions."""
    kept: list[int] = []
    for value in values:
        if not kept or kept[-1] != value:
            kept.append(value)
    return kept


def test_cool_device_is_not_limited() -> None:
    """Also right after the start, before its state is known."""
    assert set(Device().at(45.0, 60)) == {4}


def test_warm_device_loses_a_slot_every_half_minute_down_to_one() -> None:
    """The first at once, the last never."""
    device = Device()
    device.be(Heat.COOL, 300)

    assert device.be(Heat.WARM, 35) == [3, 3, 3, 3, 3, 3, 2]
    assert changes(device.be(Heat.WARM, 600)) == [2, 1]


@pytest.mark.parametrize("state", [Heat.COOL, Heat.WARM, Heat.RECOVERING])
@pytest.mark.parametrize("celsius", [68.0, 72.0, 75.9])
def test_number_of_slots_that_keeps_a_board_warm_is_kept(state: Heat, celsius: float) -> None:
    """Between the leaving temperature of warm and half-way to hot nothing changes."""
    device = Device()
    device.be(Heat.WARM, 5)
    assert device.limit.slots == 3

    assert set(device.be(state, 3600, celsius)) == {3}


def test_slots_fall_from_half_way_between_warm_and_hot() -> None:
    """A degree lower the board may stay for ever."""
    assert crowded_celsius(LIMITS) == 76.0
    assert Device().be(Heat.WARM, 5, 76.0) == [3]
    assert Device().be(Heat.WARM, 5, 75.9) == [4]


def test_cool_again_it_gets_one_back_every_two_minutes() -> None:
    """Slower up than down."""
    device = Device()
    device.be(Heat.WARM, 300)

    back = device.be(Heat.COOL, 600)

    assert changes(back) == [1, 2, 3, 4] or changes(back) == [2, 3, 4]
    assert back.count(3) == 24
    assert device.limit.slots is None


@pytest.mark.parametrize(
    ("state", "expected"), [(Heat.HOT, 1), (Heat.CRITICAL, 0), (Heat.EMERGENCY, 0)]
)
def test_overheated_device_is_limited_at_once(state: Heat, expected: int) -> None:
    """One slot at hot, none on offer from critical on."""
    assert set(Device().be(state, 60)) == {expected}


def test_recovering_device_comes_back_slot_by_slot_from_one() -> None:
    """The time it was hot does not count."""
    device = Device()
    device.be(Heat.HOT, 600)

    recovering = device.be(Heat.RECOVERING, 600)

    assert changes(recovering) == [1, 2, 3, 4]
    assert recovering[:24] == [1] * 24
    assert recovering[24] == 2


@pytest.mark.parametrize("state", [Heat.COOL, Heat.WARM, Heat.HOT, Heat.RECOVERING])
def test_whole_device_is_withdrawn_at_critical_only(state: Heat) -> None:
    """One slot is the least of every state below."""
    device = Device(slots=1)

    assert set(device.be(state, 300)) == {1}
    assert set(device.be(Heat.CRITICAL, 10)) == {0}
    assert set(device.be(state, 5)) == {1}


def test_missing_readings_freeze_then_limit_to_one() -> None:
    """What is not known is neither hot nor cool; after a minute one slot is enough."""
    device = Device()
    device.at(45.0, 60)

    blind = device.at(None, 120)

    assert blind[:10] == [4] * 10
    assert blind[-1] == 1
    assert changes(blind) == [4, 1]


def test_missing_readings_leave_what_was_withdrawn() -> None:
    """A limit of none stays none."""
    device = Device()
    device.at(45.0, 60)
    device.at(95.0, 120)
    assert device.machine.state is Heat.CRITICAL

    assert set(device.at(None, 300)) == {0}


@pytest.mark.parametrize(("celsius", "first"), [(71.0, 4), (73.0, 1), (82.0, 1), (90.0, 0)])
def test_first_reading_after_a_start_decides_for_now(celsius: float, first: int) -> None:
    """A plugin that restarts on a hot board does not give back at once what was withdrawn."""
    assert Device().at(celsius, 5) == [first]


def test_sensor_that_never_answers_leaves_one_slot() -> None:
    """After the time in which a reading counts as lost."""
    assert changes(Device().at(None, 120)) == [4, 1]


def test_slots_that_become_fewer_or_more_keep_the_limit_in_range() -> None:
    """The number of cores may become known later."""
    device = Device(slots=1)
    device.be(Heat.HOT, 10)
    device.slots = 3
    assert device.be(Heat.HOT, 5) == [1]
    device.slots = 1
    assert device.be(Heat.HOT, 5) == [1]
    assert device.limit.slots is None


@given(
    st.lists(st.tuples(st.sampled_from(Heat), st.integers(1, 60)), max_size=20),
    st.integers(1, 6),
)
def test_limit_is_what_the_state_allows(path: list[tuple[Heat, int]], slots: int) -> None:
    """Never out of range, never none below critical, and up by one slot at a time from one on."""
    device = Device(slots=slots)
    before = slots
    for state, looks in path:
        for limit in device.be(state, looks * INTERVAL):
            assert 0 <= limit <= slots
            if state in (Heat.CRITICAL, Heat.EMERGENCY):
                assert limit == 0
            elif state is not Heat.UNKNOWN:
                assert limit >= 1
            assert limit - before <= 1
            before = limit

"""Busy shares from counters: in range, right in sum, and nothing from readings that differ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu.activity import Activity


def test_the_first_reading_says_nothing() -> None:
    """A counter since boot is no load."""
    assert Activity().advance([500_000], 10.0) == ()


def test_a_share_is_active_time_over_time() -> None:
    """Each core has its own."""
    activity = Activity()
    activity.advance([1000, 2000, 3000], 10.0)
    assert activity.advance([1500, 2000, 5000], 12.0) == (0.25, 0.0, 1.0)


def test_two_readings_at_once_say_the_same() -> None:
    """Two callers in one instant do not turn a millisecond into a load."""
    activity = Activity()
    activity.advance([0], 10.0)
    assert activity.advance([500], 11.0) == (0.5,)
    assert activity.advance([501], 11.001) == (0.5,)
    assert activity.advance([1000], 12.0) == (0.5,)


@pytest.mark.parametrize("times", [[100], [2000, 2000, 2000], []])
def test_what_cannot_be_compared_starts_anew(times: list[int]) -> None:
    """A counter that went back, or other cores: the driver was loaded anew."""
    activity = Activity()
    activity.advance([1000, 1000], 10.0)
    assert activity.advance(times, 11.0) == ()
    assert activity.advance([time + 250 for time in times], 12.0) == (0.25,) * len(times)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=50), st.integers(1, 5))
def test_sums_are_right_for_counters_in_steps(busy: list[int], steps: int) -> None:
    """Time that a stepwise counter tells late is not lost, and no share leaves the range."""
    activity = Activity()
    activity.advance([0], 0.0)
    total, counted, pending = 0, 0.0, 0
    for second, milliseconds in enumerate(busy, start=1):
        pending += milliseconds
        # Now and then the counter is written just after the reading instead of just before.
        if second % steps:
            total, pending = total + pending, 0
        (ratio,) = activity.advance([total], float(second))
        assert 0.0 <= ratio <= 1.0
        counted += ratio
    assert counted <= total / 1000 + 1e-6
    assert counted >= total / 1000 - len(busy)


def test_a_late_second_is_carried_once() -> None:
    """Nothing in one second and two seconds' worth in the next is one and a half, then the rest."""
    activity = Activity()
    activity.advance([0], 0.0)
    ratios = [activity.advance([time], at)[0] for time, at in [(0, 1.0), (1800, 2.0), (1800, 3.0)]]
    assert ratios == pytest.approx([0.0, 1.0, 0.8])

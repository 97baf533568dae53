"""Half speed at heat, full speed after a while of cold."""

from hypothesis import given
from hypothesis import strategies as st

from inference.throttle import Limits, Throttle, advance, allowed

LIMITS = Limits(enter_celsius=76.0, leave_celsius=70.0, hold_seconds=30.0)


def after(*readings: tuple[float, float | None]) -> Throttle:
    """Return the state after readings of (second, temperature)."""
    state = Throttle()
    for now, celsius in readings:
        state = advance(state, celsius, now, LIMITS)
    return state


def test_heat_enters_at_once_and_leaves_after_the_hold() -> None:
    """Between the limits nothing changes; the hold begins anew after a warm reading."""
    assert not after((0, 75.9)).active
    assert after((0, 76.0)).active
    assert after((0, 76.0), (2, 71.0), (100, 71.0)).active
    assert after((0, 76.0), (2, 69.0), (31, 69.0)).active
    assert not after((0, 76.0), (2, 69.0), (32, 69.0)).active
    assert after((0, 76.0), (2, 69.0), (20, 72.0), (33, 69.0)).active


def test_no_reading_is_not_cold() -> None:
    """A sensor that falls silent neither releases nor throttles."""
    assert after((0, 76.0), (2, 69.0), (10, None), (40, 69.0)).active
    assert not after((0, None), (100, None)).active


@given(st.lists(st.none() | st.floats(min_value=-20, max_value=69.9)))
def test_cold_never_throttles(readings: list[float | None]) -> None:
    """Without a reading from the limit on it runs at full speed."""
    assert not after(*enumerate(readings)).active


@given(st.integers(min_value=1, max_value=64))
def test_half_is_rounded_up(workers: int) -> None:
    """At least one worker goes on, and never more than half and one."""
    assert allowed(workers, throttled=False) == workers
    assert 1 <= allowed(workers, throttled=True) <= (workers + 1) // 2

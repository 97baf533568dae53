"""The temperature filter: outliers, quantised noise, impossible readings."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu.signal_filter import Signal, accept


def feed(values: list[float], *, interval: float = 5.0) -> Signal:
    signal = Signal()
    for index, value in enumerate(values):
        signal, _ = accept(signal, value, index * interval, maximum_celsius=120)
    return signal


def test_one_outlier_changes_little() -> None:
    """A single spike of 20 °C never reaches the median."""
    assert feed([60, 60, 60, 80, 60]).smoothed_celsius == 60


def test_forty_percent_of_a_change_arrive_after_five_seconds() -> None:
    """The average takes 0.4 of a step that the median has passed on."""
    signal = feed([60, 60, 60, 70, 70])

    assert signal.smoothed_celsius == pytest.approx(64)


def test_interval_does_not_change_the_time_constant() -> None:
    """Five readings a second apart weigh as much as one after five seconds."""
    slow, _ = accept(feed([60, 70, 70]), 70, 15, maximum_celsius=120)
    fast = feed([60, 70, 70])
    for second in range(11, 16):
        fast, _ = accept(fast, 70, second, maximum_celsius=120)

    assert fast.smoothed_celsius == pytest.approx(slow.smoothed_celsius)


@pytest.mark.parametrize("celsius", [-275, -21, 121, math.nan, math.inf])
def test_impossible_readings_are_refused(celsius: float) -> None:
    """What no chip can have changes nothing."""
    signal = feed([60])

    assert accept(signal, celsius, 5, maximum_celsius=120) == (signal, "implausible")


def test_a_jump_needs_two_more_readings() -> None:
    """More than 25 °C in one step is believed only when confirmed twice."""
    signal = feed([50])
    verdicts = []
    for index, value in enumerate([80, 81, 82]):
        signal, verdict = accept(signal, value, 5 + index * 5, maximum_celsius=120)
        verdicts.append(verdict)

    assert verdicts == ["jump", "jump", "accepted"]
    assert signal.raw == (80, 81, 82)


def test_a_placeholder_between_readings_is_never_confirmed() -> None:
    """A sensor that answers 115 every other time keeps its real value."""
    assert feed([60, 115, 60, 115, 60, 115, 60]).smoothed_celsius == 60


@given(st.lists(st.floats(min_value=40, max_value=60), min_size=1, max_size=40))
def test_the_average_stays_within_the_readings(values: list[float]) -> None:
    """Filtering invents no temperature."""
    smoothed = feed(values).smoothed_celsius

    assert smoothed is not None
    assert min(values) - 1e-9 <= smoothed <= max(values) + 1e-9

"""Laws of the thermal model, and the figures that make the simulated board believable."""

import dataclasses

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu import catalogue
from npu.catalogue import Heating
from npu.thermal_model import (
    ThermalState,
    governed,
    sensor_millicelsius,
    steady_state,
    step,
    temperature_celsius,
)

SIMULATION = catalogue.load("rk3588").simulation
assert SIMULATION is not None
RK3588 = SIMULATION.heating
UNGOVERNED = msgspec.structs.replace(RK3588, governor=None)

ratios = st.floats(0, 1)
seconds = st.floats(0.01, 600)
states = st.builds(
    ThermalState, fast_celsius=st.floats(0, RK3588.fast_celsius), slow_celsius=st.floats(0, 28)
)


def _celsius(heating: Heating, state: ThermalState, ambient: float = 30.0) -> float:
    return temperature_celsius(heating, state, ambient)


def _after(heating: Heating, load: float, total: float, *, ambient: float = 30.0) -> ThermalState:
    return step(heating, ThermalState(), dt_seconds=total, load_ratio=load, ambient_celsius=ambient)


@given(states, ratios, seconds)
def test_the_temperature_stays_between_start_and_steady_state(
    state: ThermalState, load: float, dt: float
) -> None:
    """Heat never overshoots, and never falls below the idle board's."""
    after = step(UNGOVERNED, state, dt_seconds=dt, load_ratio=load, ambient_celsius=30)
    for part in ("fast_celsius", "slow_celsius"):
        bounds = sorted([getattr(state, part), getattr(steady_state(UNGOVERNED, load), part)])
        assert bounds[0] - 1e-9 <= getattr(after, part) <= bounds[1] + 1e-9
    assert _celsius(UNGOVERNED, after) >= 30 + UNGOVERNED.idle_celsius - 1e-9


@given(states, ratios, ratios, seconds)
def test_a_lower_limit_of_the_clock_is_never_hotter(
    state: ThermalState, one: float, other: float, dt: float
) -> None:
    """Where the kernel does not interfere, whose cap comes and goes."""
    low, high = (
        step(UNGOVERNED, state, dt_seconds=dt, load_ratio=1, ambient_celsius=30, clock_ratio=ratio)
        for ratio in sorted((one, other))
    )
    assert _celsius(UNGOVERNED, low) <= _celsius(UNGOVERNED, high) + 1e-9


def test_of_limit_and_cap_the_lower_clock_counts() -> None:
    """A limit to 90 % leaves 81 % of the power, the kernel's cap 64 %."""
    capped = ThermalState(fast_celsius=18.0, slow_celsius=28.0, capped=True)

    def after(clock_ratio: float) -> ThermalState:
        return step(
            RK3588,
            capped,
            dt_seconds=1,
            load_ratio=1,
            ambient_celsius=45,
            clock_ratio=clock_ratio,
        )

    assert after(0.9) == after(1.0)
    assert _celsius(RK3588, after(0.6)) < _celsius(RK3588, after(1.0))


@given(states, ratios, ratios, seconds)
def test_more_load_is_never_cooler(
    state: ThermalState, one: float, other: float, dt: float
) -> None:
    """From the same state, the higher load ends at least as hot."""
    low, high = (
        step(UNGOVERNED, state, dt_seconds=dt, load_ratio=load, ambient_celsius=30)
        for load in sorted((one, other))
    )
    assert _celsius(UNGOVERNED, low) <= _celsius(UNGOVERNED, high) + 1e-9


@given(states, ratios, st.integers(1, 60), st.sampled_from([1, 2, 10]))
def test_speed_changes_the_clock_and_not_the_trajectory(
    state: ThermalState, load: float, total: int, speed: int
) -> None:
    """Ten times faster for a tenth of the time is the same, the governor included."""
    slow = step(RK3588, state, dt_seconds=total * speed, load_ratio=load, ambient_celsius=40)
    fast = step(RK3588, state, dt_seconds=total, load_ratio=load, ambient_celsius=40, speed=speed)
    assert fast == slow


@given(states, ratios, st.floats(0.1, 100), st.floats(0.1, 100))
def test_dividing_the_time_changes_nothing(
    state: ThermalState, load: float, first: float, second: float
) -> None:
    """A daemon that ticks irregularly simulates the same board."""
    whole = step(UNGOVERNED, state, dt_seconds=first + second, load_ratio=load, ambient_celsius=30)
    half = step(UNGOVERNED, state, dt_seconds=first, load_ratio=load, ambient_celsius=30)
    parts = step(UNGOVERNED, half, dt_seconds=second, load_ratio=load, ambient_celsius=30)
    assert dataclasses.astuple(parts) == pytest.approx(dataclasses.astuple(whole), abs=1e-6)


def test_a_board_without_fan_passes_80_degrees_on_a_summer_day() -> None:
    """Full load at 38 degrees ambient is what the thermal guard is for."""
    assert _celsius(RK3588, _after(RK3588, 1.0, 3600, ambient=38), 38) > 80
    assert _celsius(RK3588, _after(RK3588, 0.0, 3600, ambient=38), 38) == pytest.approx(44)


def test_heat_comes_fast_then_slowly_and_leaves_the_same_way() -> None:
    """A load change shows within ten seconds; the case needs minutes."""
    after_10 = _celsius(RK3588, _after(RK3588, 1.0, 10)) - 36
    after_600 = _celsius(RK3588, _after(RK3588, 1.0, 600)) - 36
    assert 10 <= after_10 <= 16
    assert after_600 > 40
    hot = _after(RK3588, 1.0, 3600)
    cooled = step(RK3588, hot, dt_seconds=30, load_ratio=0, ambient_celsius=30)
    assert _celsius(RK3588, hot) - _celsius(RK3588, cooled) > 13
    assert cooled.slow_celsius > 20


def test_the_governor_caps_at_85_and_releases_at_80() -> None:
    """The cap has the kernel's hysteresis, and less heat while it holds."""
    capped: list[bool] = []
    state = ThermalState()
    celsius: list[float] = []
    for _ in range(3600):
        state = step(RK3588, state, dt_seconds=1, load_ratio=1.0, ambient_celsius=42)
        capped.append(state.capped)
        celsius.append(_celsius(RK3588, state, 42))
    first = capped.index(True)
    assert 85 <= celsius[first] < 86
    assert max(celsius) < 86
    released = capped.index(False, first)
    assert celsius[released] <= 80


def test_a_dictated_temperature_moves_the_governor() -> None:
    """A test that dictates 91 degrees sees the clock capped, and released below 80."""
    hot = governed(RK3588, ThermalState(), ambient_celsius=30, measured_celsius=91)
    assert hot.capped
    assert governed(RK3588, hot, ambient_celsius=30, measured_celsius=82).capped
    assert not governed(RK3588, hot, ambient_celsius=30, measured_celsius=80).capped


def test_the_sensor_shows_the_values_that_real_ones_show() -> None:
    """Captured temperatures are values of the sensor, 0.923 degrees apart."""
    captured = [35153, 36076, 37000, 37923, 38846, 39769, 40692]
    assert [sensor_millicelsius((value + 10) / 1000) for value in captured] == captured


@given(st.floats(-20, 130))
def test_the_sensor_is_never_off_by_more_than_its_step(celsius: float) -> None:
    """What is shown is at most one step below the truth."""
    shown = sensor_millicelsius(celsius) / 1000
    assert celsius - 0.9251 <= shown <= celsius + 1e-6
    assert sensor_millicelsius(shown + 0.001) == sensor_millicelsius(celsius)

"""Thresholds: what a person may set and what a board's trip points make of it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu.thresholds import (
    MINIMUM_HOLD_SECONDS,
    MINIMUM_HYSTERESIS_CELSIUS,
    Settings,
    ThresholdError,
    Timing,
    Trip,
)


def passive(zone: str, celsius: float) -> Trip:
    return Trip(zone=zone, kind="passive", celsius=celsius)


def critical(zone: str, celsius: float) -> Trip:
    return Trip(zone=zone, kind="critical", celsius=celsius)


def test_rk3588_without_trips_gets_the_documented_values() -> None:
    """Without trip points an RK3588 is warm at 72, hot at 80, critical at 88, emergency at 100."""
    limits = Settings().resolve(model="rk3588")

    assert limits.named() == {
        "warm": 72,
        "warm_leave": 68,
        "hot": 80,
        "hot_leave": 70,
        "critical": 88,
        "critical_leave": 75,
        "emergency": 100,
    }
    assert limits.saturated_celsius == 84
    assert limits.maximum_plausible_celsius == 120


def test_vendor_kernel_target_is_the_highest_passive_trip_of_a_zone() -> None:
    """Switch-on 75 and target 85 in one zone: 85 is what the governor holds."""
    trips = [passive("soc-thermal", 75), passive("soc-thermal", 85), critical("soc-thermal", 115)]

    assert Settings().resolve(model="rk3588", trips=trips).hot_celsius == 80


def test_a_lower_target_moves_everything_down() -> None:
    """With a control target of 60 °C hot is 55 and warm stays below it."""
    limits = Settings().resolve(model="rk3588", trips=[passive("cpu-thermal", 60)])

    assert (limits.warm_celsius, limits.hot_celsius, limits.critical_celsius) == (47, 55, 63)


def test_rk356x_stays_fifteen_degrees_below_its_shutdown() -> None:
    """An RK3568 powers off at 95 °C: critical is 78 and emergency below 95."""
    limits = Settings().resolve(model="rk3568")

    assert (limits.hot_celsius, limits.critical_celsius, limits.emergency_celsius) == (70, 78, 90)


def test_fans_and_foreign_zones_do_not_count() -> None:
    """Fan curves are active trips, and a wifi module is not the chip."""
    trips = [
        Trip(zone="soc-thermal", kind="active", celsius=55),
        passive("wlan-thermal", 60),
        passive("npu-thermal", 0),
    ]

    assert Settings().resolve(model="rk3588", trips=trips) == Settings().resolve(model="rk3588")


def test_a_set_temperature_moves_what_is_derived_from_it() -> None:
    """Setting hot to 60 keeps warm and the leaving temperatures at their distance."""
    limits = Settings(hot_celsius=60).resolve(model="rk3588")

    assert (limits.warm_celsius, limits.hot_celsius, limits.hot_leave_celsius) == (52, 60, 50)


def test_settings_that_contradict_a_board_fall_back_to_its_chip() -> None:
    """A hot of 80 on a board whose kernel throttles at 70 is not critical before it is hot."""
    limits = Settings(hot_celsius=77).resolve(model="rk3588", trips=[passive("soc-thermal", 70)])

    assert (limits.hot_celsius, limits.critical_celsius) == (77, 88)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"hotCelsius": 95}, "hotCelsius"),
        ({"hotCelsius": 70, "warmCelsius": 71}, "warmCelsius"),
        ({"hotLeaveCelsius": 78}, "hotLeaveCelsius"),
        ({"timing": {"hotHoldSeconds": 0}}, "hotHoldSeconds"),
        ({"timing": {"hotHoldSeconds": 900}}, "hotHoldMaximumSeconds"),
        ({"hotCelcius": 80}, "hotCelcius"),
    ],
)
def test_a_bad_setting_is_refused_by_name(settings: dict[str, object], named: str) -> None:
    """A contradiction is found when the settings are read, and the message names the key."""
    with pytest.raises(msgspec.ValidationError, match=named):
        msgspec.convert(settings, Settings)


def test_errors_are_value_errors() -> None:
    """Direct construction raises the package's own error."""
    with pytest.raises(ThresholdError):
        Settings(hot_celsius=99)


def test_short_holds_are_for_simulated_boards() -> None:
    """A hold below a minute takes effect on a simulated board only."""
    settings = Settings(timing=Timing(hot_hold_seconds=5, hot_hold_maximum_seconds=20))

    assert settings.resolve(simulated=True).timing.hot_hold_seconds == 5
    assert settings.resolve().timing.hot_hold_seconds == MINIMUM_HOLD_SECONDS
    assert settings.resolve().timing.hot_hold_maximum_seconds == MINIMUM_HOLD_SECONDS


def test_slow_sources_get_more_time_before_data_is_missing() -> None:
    """With readings every 30 s, one late reading is not missing data."""
    timing = Timing().for_interval(30)

    assert (timing.missing_seconds, timing.lost_seconds) == (90, 120)
    assert Timing().for_interval(5) == Timing()


trips = st.lists(
    st.builds(
        Trip,
        zone=st.sampled_from(["soc-thermal", "npu-thermal", "gpu-thermal", "x86"]),
        kind=st.sampled_from(["passive", "critical", "active", "hot"]),
        celsius=st.floats(allow_nan=True, allow_infinity=True),
    ),
    max_size=8,
)


@given(trips=trips, model=st.sampled_from([None, "rk3588", "rk3566", "ascend310p"]))
def test_any_trips_give_usable_limits(trips: list[Trip], model: str | None) -> None:
    """Whatever a kernel writes as trip points, the order and the hysteresis hold."""
    limits = Settings().resolve(model=model, trips=trips)

    assert limits.warm_celsius < limits.hot_celsius < limits.critical_celsius
    assert limits.critical_celsius < limits.emergency_celsius < limits.maximum_plausible_celsius
    assert limits.hot_celsius - limits.hot_leave_celsius >= MINIMUM_HYSTERESIS_CELSIUS


def test_ascend_has_its_own_limits_whatever_the_machine_around_it_says() -> None:
    """A card in a Rockchip board is not governed by that board's trip points."""
    trips = [Trip(zone="soc-thermal", kind="passive", celsius=70.0)]
    for model in ("ascend910b", "ascend310p-vnpu"):
        limits = Settings().resolve(model=model, trips=trips)
        assert (limits.warm_celsius, limits.hot_celsius, limits.critical_celsius) == (72, 80, 88)
        assert limits == Settings(preset="ascend").resolve()

"""Thermal zones are found by type, judged by preference, and refused when they make no sense."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from npu import thermal
from npu.errors import ImplausibleError, MissingError
from npu.model import CoolingDevice, ThermalZone, TripPoint

if TYPE_CHECKING:
    from npu.host import Host
    from tests.unit.npu.conftest import MakeBoard

ZONES = "/sys/devices/virtual/thermal"


def _zone(host: Host, kind: str) -> ThermalZone:
    return next(zone for zone in thermal.zones(host) if zone.type == kind)


def test_zones_have_types_and_trips(make_board: MakeBoard) -> None:
    """Zones come in numerical order with the trip points that the kernel lists."""
    zones = thermal.zones(make_board("rk3588"))
    assert [zone.index for zone in zones] == list(range(7))
    assert zones[6].type == "npu-thermal"
    assert zones[6].trips == (TripPoint(kind="critical", millicelsius=115_000),)
    assert zones[0].trips[0] == TripPoint(kind="passive", millicelsius=75_000)


def test_one_bad_zone_does_not_hide_the_others(make_board: MakeBoard) -> None:
    """A zone without readable type is left out, and so is one bad trip point."""
    host = make_board(
        "rk3588",
        {
            f"{ZONES}/thermal_zone0/type": b"\xff",
            f"{ZONES}/thermal_zone6/trip_point_0_temp": b"hot\n",
        },
    )
    zones = thermal.zones(host)
    assert len(zones) == 6
    assert zones[-1].trips == ()


def test_the_npu_zone_is_judged_wherever_it_is(make_board: MakeBoard) -> None:
    """Ten zones sort by number, and an unrelated zone at the usual place is not taken."""
    host = make_board(
        "rk3588",
        {
            f"{ZONES}/thermal_zone6/type": b"charger\n",
            "/sys/class/thermal/thermal_zone10/type": b"npu-thermal\n",
        },
    )
    zones = thermal.zones(host)
    assert zones[-1].index == 10
    judged = thermal.judged_zone(zones, "rockchip")
    assert judged is not None
    assert judged.index == 10
    assert thermal.is_npu_zone(judged)


@pytest.mark.parametrize(
    ("types", "judged"),
    [
        (["soc-thermal", "gpu-thermal"], "soc-thermal"),
        (["cpu-thermal", "gpu-thermal"], "cpu-thermal"),
        (["cpu-thermal", "package-thermal"], "package-thermal"),
        (["gpu-thermal"], None),
        (["npu_thermal_zone"], None),
        ([], None),
    ],
)
def test_without_npu_zone_the_chip_s_is_judged(types: list[str], judged: str | None) -> None:
    """Chips without a sensor at the NPU are judged by the whole chip's, or not at all."""
    zones = tuple(ThermalZone(index=index, type=kind) for index, kind in enumerate(types))
    found = thermal.judged_zone(zones, "rockchip")
    assert (found and found.type) == judged
    assert thermal.judged_zone(zones, "huawei") is None


@pytest.mark.parametrize("value", [-20_000, -1, 0, 39_769, 130_000])
def test_plausible_temperatures_pass_unchanged(make_board: MakeBoard, value: int) -> None:
    """The kernel's unit is kept."""
    host = make_board("rk3588", {f"{ZONES}/thermal_zone6/temp": f"{value}\n".encode()})
    assert thermal.millicelsius(host, _zone(host, "npu-thermal")) == value


@pytest.mark.parametrize("content", [b"215000\n", b"-20001\n", b"130001\n", b"", b"warm\n", b"4e4"])
def test_other_temperatures_are_implausible(make_board: MakeBoard, content: bytes) -> None:
    """A wrong conversion table is no heat."""
    host = make_board("rk3588", {f"{ZONES}/thermal_zone6/temp": content})
    with pytest.raises(ImplausibleError):
        thermal.millicelsius(host, _zone(host, "npu-thermal"))


def test_a_zone_that_changed_its_number_is_missing(make_board: MakeBoard) -> None:
    """After a module reload another zone may have the index: its value is not ours."""
    host = make_board("rk3588")
    zone = _zone(host, "npu-thermal")
    (Path(host.root) / f"{ZONES.lstrip('/')}/thermal_zone6/type").write_text("charger\n")
    with pytest.raises(MissingError, match="charger"):
        thermal.millicelsius(host, zone)


def test_fans_are_told_from_throttles(make_board: MakeBoard) -> None:
    """A running fan is not evidence of throttling; an unreadable device is left out."""
    fan = "/sys/class/thermal/cooling_device2"
    host = make_board(
        "rk3588",
        {
            f"{fan}/type": b"pwm-fan\n",
            f"{fan}/cur_state": b"2\n",
            f"{fan}/max_state": b"4\n",
            f"{ZONES}/cooling_device0/cur_state": b"\n",
        },
    )
    assert thermal.cooling_devices(host) == (
        CoolingDevice(index=1, type="cpufreq-cpu4", state=0, maximum_state=8, is_fan=False),
        CoolingDevice(index=2, type="pwm-fan", state=2, maximum_state=4, is_fan=True),
    )

"""Collectors: present facts, absent ones, and what counts as a failure."""

import errno
from dataclasses import replace

import pytest

from exporter import catalogue
from exporter.board import Board, BoardWatch
from exporter.catalogue import CATALOGUE, Metric
from exporter.collectors import Collector, NotScannedError
from exporter.collectors.allocation import AllocationCollector
from exporter.collectors.clock import ClockCollector
from exporter.collectors.cooling import CoolingCollector
from exporter.collectors.identity import IdentityCollector
from exporter.collectors.load import LoadCollector
from exporter.collectors.memory import MemoryCollector
from exporter.collectors.telemetry import TelemetryCollector
from exporter.collectors.temperature import TemperatureCollector
from exporter.failures import Failures
from exporter.names import SENSOR_CHARACTERS, TEXT_CHARACTERS, trip_names, unique_names
from npu.errors import DeniedError, ImplausibleError, MissingError, TransientError
from npu.model import Clock, CoolingDevice, Inventory, Refused, ThermalZone, TripPoint
from tests.unit.exporter.fakes import (
    FakeClockSource,
    FakeLister,
    Parts,
    held,
    loads,
    npu,
    values,
    watch,
)

NPU_ZONE = ThermalZone(
    index=6, type="npu-thermal", trips=(TripPoint(kind="critical", millicelsius=115_000),)
)
SOC_ZONE = ThermalZone(
    index=0,
    type="soc-thermal",
    trips=(
        TripPoint(kind="passive", millicelsius=75_000),
        TripPoint(kind="passive", millicelsius=85_000),
        TripPoint(kind="critical", millicelsius=115_000),
        TripPoint(kind="hot", millicelsius=0),
    ),
)


class Sensors:
    """Zones with set readings; an exception is raised instead."""

    def __init__(self, **readings: int | Exception) -> None:
        self.readings = {name.replace("_", "-"): value for name, value in readings.items()}

    def __call__(self, zone: ThermalZone) -> int:
        """Read one zone."""
        value = self.readings[zone.type]
        if isinstance(value, Exception):
            raise value
        return value


def test_identity_leaves_unknown_labels_out() -> None:
    """No label is empty: what is not known is not there."""
    reading = IdentityCollector(watch(npu())).collect()
    (sample,) = (s for s in reading.samples if s.metric is catalogue.INFO)
    labels = dict(sample.labels)
    assert labels["simulated"] == "false"
    assert "library_version" not in labels
    assert all(labels.values())


def test_hardware_without_driver_is_told_once_per_reason() -> None:
    """Two unbound units are one series; a board without NPU has none."""
    refused = tuple(
        Refused(what=f"npu@{n}", why="driver_not_bound", detail="load the module") for n in range(2)
    )
    made = BoardWatch(lambda: Board(inventory=Inventory(refused=refused)), Failures())
    made.step()
    samples = IdentityCollector(made).collect().samples
    assert values(samples, "npu_hardware_present") == {("driver_not_bound",): 1}
    assert IdentityCollector(watch()).collect().samples == ()


def test_failed_scan_leaves_no_identity() -> None:
    """What was found earlier is not told as if it were now."""
    boards = iter([Board(inventory=Inventory(npus=(npu(),)))])
    made = BoardWatch(lambda: next(boards), Failures())
    made.step()
    made.step()
    reading = IdentityCollector(made).collect()
    assert reading.samples == ()
    assert len(reading.failures) == 1


def test_unscanned_board_is_a_failure_not_an_absence() -> None:
    """Before the first look nothing is said about the board."""
    made = BoardWatch(lambda: Board(inventory=Inventory()), Failures())
    with pytest.raises(NotScannedError):
        IdentityCollector(made).collect()


def test_load_counters_of_a_failing_device_stand_still() -> None:
    """The counters stay and do not grow, npu_up falls, the collector is unsuccessful."""
    parts = Parts(watch(npu()))
    collector = LoadCollector(parts.board, parts.account, parts.sampler)
    parts.load = loads(1.0, 0.5)
    parts.sampler.step()
    parts.second()
    good = collector.collect()
    assert good.failures == ()
    assert values(good.samples, "npu_up") == {("npu0",): 1}

    parts.load = DeniedError("/sys/kernel/debug/rknpu/load", errno.EACCES)
    parts.second()
    bad = collector.collect()
    assert values(bad.samples, "npu_up") == {("npu0",): 0}
    assert len(bad.failures) == 1
    for name in ("npu_core_busy_seconds_total", "npu_last_sample_timestamp_seconds"):
        assert values(bad.samples, name) == values(good.samples, name)


def test_no_npu_means_no_up() -> None:
    """A node without NPU exports no load series and succeeds."""
    parts = Parts(watch())
    reading = LoadCollector(parts.board, parts.account, parts.sampler).collect()
    assert (reading.samples, reading.failures) == ((), ())


def test_driver_without_load_is_up_by_design() -> None:
    """An interface that has no load gives no counters and no failure."""
    parts = Parts(watch(npu()))
    parts.load = ()
    parts.second()
    reading = LoadCollector(parts.board, parts.account, parts.sampler).collect()
    assert values(reading.samples, "npu_up") == {("npu0",): 1}
    assert values(reading.samples, "npu_core_busy_seconds_total") == {}
    assert reading.failures == ()


def test_lost_device_takes_its_series_along() -> None:
    """After its loss only the time of the last sample is left, to alert by its age."""
    boards = iter([Board(inventory=Inventory(npus=(npu(),))), Board(inventory=Inventory())])
    made = BoardWatch(lambda: next(boards), Failures())
    made.step()
    parts = Parts(made)
    parts.second()
    made.step()
    samples = LoadCollector(made, parts.account, parts.sampler).collect().samples
    assert [sample.metric.name for sample in samples] == ["npu_last_sample_timestamp_seconds"]


def test_clock_exports_what_can_be_read() -> None:
    """A clock of None is absent, not 0."""
    source = FakeClockSource(Clock(maximum_hertz=10**9), powered=False)
    samples = ClockCollector(watch(npu()), source).collect().samples
    assert values(samples, "npu_power_on") == {("npu0",): 0}
    assert values(samples, "npu_frequency_max_hertz") == {("npu0",): 1e9}
    assert values(samples, "npu_frequency_hertz") == {}


def test_clock_of_one_device_does_not_hide_another() -> None:
    """A driver fault on one card leaves the others' clocks."""
    source = FakeClockSource(Clock(current_hertz=1), powered=None, broken="npu0")
    reading = ClockCollector(watch(npu("npu0"), npu("npu1")), source).collect()
    assert values(reading.samples, "npu_frequency_hertz") == {("npu1",): 1}
    assert len(reading.failures) == 1


def test_temperatures_and_limits() -> None:
    """Judged temperature, every zone, and each real trip point under its own name."""
    collector = TemperatureCollector(
        watch(npu(), zones=(SOC_ZONE, NPU_ZONE)), Sensors(soc_thermal=41_500, npu_thermal=39_769)
    )
    reading = collector.collect()
    assert values(reading.samples, "npu_temperature_celsius") == {("npu0", "npu-thermal"): 39.769}
    assert values(reading.samples, "npu_thermal_zone_celsius") == {
        ("soc-thermal",): 41.5,
        ("npu-thermal",): 39.769,
    }
    assert values(reading.samples, "npu_temperature_limit_celsius") == {
        ("soc-thermal", "passive-0"): 75.0,
        ("soc-thermal", "passive-1"): 85.0,
        ("soc-thermal", "critical"): 115.0,
        ("npu-thermal", "critical"): 115.0,
    }
    assert (reading.failures, reading.tolerated) == ((), ())


def test_one_bad_zone_hides_no_other() -> None:
    """A foreign sensor that fails is tolerated; the judged one makes the collector fail."""
    busy = TransientError("/sys/class/thermal/thermal_zone0/temp", errno.EAGAIN)
    board = watch(npu(), zones=(SOC_ZONE, NPU_ZONE))

    foreign = TemperatureCollector(board, Sensors(soc_thermal=busy, npu_thermal=40_000)).collect()
    assert values(foreign.samples, "npu_thermal_zone_celsius") == {("npu-thermal",): 40.0}
    assert (foreign.failures, foreign.tolerated) == ((), (busy,))

    judged = TemperatureCollector(board, Sensors(soc_thermal=40_000, npu_thermal=busy)).collect()
    assert values(judged.samples, "npu_temperature_celsius") == {}
    assert values(judged.samples, "npu_thermal_zone_celsius") == {("soc-thermal",): 40.0}
    assert judged.failures == (busy,)


def test_implausible_temperatures_are_dropped_and_counted() -> None:
    """9223372036854775 degrees are no series but a count that grows per reading."""
    nonsense = ImplausibleError("/sys/class/thermal/thermal_zone6/temp", 10**18, "a temperature")
    collector = TemperatureCollector(watch(npu(), zones=(NPU_ZONE,)), Sensors(npu_thermal=nonsense))
    collector.collect()
    samples = collector.collect().samples
    assert values(samples, "npu_temperature_implausible_total") == {(): 2}
    assert values(samples, "npu_temperature_celsius") == {}


def test_vanished_judged_zone_is_a_failure() -> None:
    """The zone a device is judged by cannot disappear silently."""
    reading = TemperatureCollector(watch(npu()), Sensors()).collect()
    assert "npu-thermal" in str(reading.failures[0])


def test_device_without_zone_has_no_temperature_by_design() -> None:
    """A board without any usable sensor is not failing."""
    reading = TemperatureCollector(watch(npu(zone=None)), Sensors()).collect()
    assert reading.failures == ()


def test_repeated_names_stay_distinct() -> None:
    """Two zones of one type are two series, whatever the types are called."""
    assert unique_names(["gpu", "gpu", "gpu-2", "gpu"]) == ["gpu", "gpu-2", "gpu-2-2", "gpu-3"]
    assert trip_names(SOC_ZONE.trips) == ["passive-0", "passive-1", "critical", "hot"]


def test_cooling_devices_of_one_type_are_two_series() -> None:
    """Two fans do not collide, and a board without any is no failure."""
    fans = [
        CoolingDevice(index=n, type="pwm-fan", state=n, maximum_state=4, is_fan=True)
        for n in range(2)
    ]
    samples = CoolingCollector(lambda: fans).collect().samples
    assert values(samples, "npu_cooling_device_state") == {("pwm-fan",): 0, ("pwm-fan-2",): 1}
    assert CoolingCollector(list).collect().samples == ()


def test_contiguous_memory() -> None:
    """Bytes, not kibibytes; a kernel without CMA and an unmounted /proc have no series."""
    text = "MemTotal:       16140000 kB\nCmaTotal:          65536 kB\nCmaFree:            1024 kB\n"
    samples = MemoryCollector(lambda _: text).collect().samples
    assert values(samples, "npu_memory_cma_size_bytes") == {(): 64 * 2**20}
    assert values(samples, "npu_memory_cma_free_bytes") == {(): 2**20}
    assert MemoryCollector(lambda _: "CmaTotal: 0 kB\nCmaFree: 0 kB\n").collect().samples == ()

    def missing(path: str) -> str:
        raise MissingError(path, errno.ENOENT)

    assert MemoryCollector(missing).collect().samples == ()


def test_allocation_of_a_shared_device() -> None:
    """All holders are told, busy time is divided among Pods and adds up to the device's."""
    parts = Parts(watch(npu()), FakeLister(held("a", "npu0-s0"), held("b", "npu0-s1")))
    parts.allocation.step()
    parts.load = loads(1.0, 1.0, 1.0)
    parts.sampler.step()
    parts.second()
    samples = AllocationCollector(parts.board, parts.account, parts.allocation).collect().samples
    assert values(samples, "npu_podresources_up") == {(): 1}
    assert len(values(samples, "npu_device_allocation_info")) == 2
    assert values(samples, "npu_pod_core_busy_seconds_total") == {
        ("team-a", "a", "estimated"): 1.5,
        ("team-a", "b", "estimated"): 1.5,
    }


def test_silent_kubelet_takes_the_holders_away() -> None:
    """Holders are absent while unknown; counters stay; busy time is owned by nobody known."""
    lister = FakeLister(held("a", "npu0"))
    parts = Parts(watch(npu()), lister)
    parts.allocation.step()
    parts.load = loads(1.0)
    parts.sampler.step()
    parts.second()
    lister.error = OSError("no socket")
    parts.allocation.step()
    parts.second()
    reading = AllocationCollector(parts.board, parts.account, parts.allocation).collect()
    assert values(reading.samples, "npu_podresources_up") == {(): 0}
    assert values(reading.samples, "npu_device_allocation_info") == {}
    assert values(reading.samples, "npu_pod_core_busy_seconds_total") == {
        ("team-a", "a", "exclusive"): 1.0
    }
    assert values(reading.samples, "npu_unaccounted_core_busy_seconds_total") == {
        ("npu0", "no_holder"): 0.0,
        ("npu0", "holders_unknown"): 1.0,
    }
    assert len(reading.failures) == 1


def test_kubelet_that_is_not_asked_is_no_failure() -> None:
    """Without a socket there are no allocation series, by design."""
    parts = Parts(watch(npu()))
    parts.allocation.step()
    reading = AllocationCollector(parts.board, parts.account, parts.allocation).collect()
    assert values(reading.samples, "npu_podresources_up") == {}
    assert reading.failures == ()


def test_long_names_are_cut_before_they_become_labels() -> None:
    """Text of a kernel or a device tree is bounded, told apart, counted, and still readable."""
    long = "x" * 500
    zones = tuple(ThermalZone(index=n, type=f"{long}{n}") for n in range(2))
    made = watch(replace(npu(zone=f"{long}1"), board=long), zones=zones)

    reading = TemperatureCollector(made, lambda zone: 40_000 + zone.index).collect()
    names = [dict(s.labels)["zone"] for s in reading.samples if "zone" in dict(s.labels)]
    assert len(set(names)) == 2
    assert all(len(name) <= SENSOR_CHARACTERS + 2 for name in names)
    assert list(values(reading.samples, "npu_temperature_celsius").values()) == [40.001]
    assert (len(reading.tolerated), reading.failures) == (2, ())

    identity = IdentityCollector(made).collect()
    (info,) = (s for s in identity.samples if s.metric is catalogue.INFO)
    assert len(dict(info.labels)["board"]) == TEXT_CHARACTERS
    assert len(identity.tolerated) == 1

    cooling = CoolingCollector(
        lambda: [CoolingDevice(index=0, type=long, state=0, maximum_state=1, is_fan=False)]
    ).collect()
    assert len(cooling.tolerated) == 1


def test_every_collector_is_in_the_catalogue() -> None:
    """Names of collectors are label values and owners of metrics."""
    kinds: tuple[type[Collector], ...] = (
        IdentityCollector,
        LoadCollector,
        ClockCollector,
        TemperatureCollector,
        CoolingCollector,
        MemoryCollector,
        AllocationCollector,
        TelemetryCollector,
    )
    assert tuple(kind.name for kind in kinds) == catalogue.COLLECTORS
    owners = {metric.collector for metric in CATALOGUE.values()}
    assert owners == {*catalogue.COLLECTORS, catalogue.SELF}


@pytest.mark.parametrize("metric", CATALOGUE.values(), ids=lambda m: m.name)
def test_metric_follows_the_naming_rules(metric: Metric) -> None:
    """Suffix by kind, a unit, no label that a scrape target has, a sentence of help."""
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.name.endswith("_info") == (
        metric.kind == "info" or metric is catalogue.ALLOCATION_INFO
    )
    assert metric.name.startswith(("npu_", "process_"))
    assert not {"node", "instance", "job", "cluster", "type", "service"} & set(metric.labels)
    assert metric.help.endswith(".")
    assert "percent" not in metric.name


def test_samples_must_match_their_metric() -> None:
    """A forgotten or invented label is an error of the program, at once."""
    with pytest.raises(ValueError, match="npu_cores"):
        catalogue.CORES.sample(3)
    with pytest.raises(ValueError, match="npu_cores"):
        catalogue.CORES.sample(3, device="npu0", core="0")

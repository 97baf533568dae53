"""Reading exporter pages, also hostile ones."""

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from thermal.exposition import SAMPLE_LIMIT, parse
from thermal.readings import DeviceSample, busy_ratio, node_sample

PAGE = """\
# HELP npu_info An NPU.
npu_info{device="npu0",vendor="rockchip",model="rk3588",driver="rknpu",cores="3"} 1
npu_temperature_celsius{device="npu0",zone="npu-thermal"} 61.9
npu_temperature_limit_celsius{zone="soc-thermal",trip="passive-0"} 75
npu_temperature_limit_celsius{zone="soc-thermal",trip="passive-1"} 85
npu_core_busy_seconds_total{device="npu0",core="0"} 10
npu_core_sampled_seconds_total{device="npu0",core="0"} 20
npu_frequency_hertz{device="npu0"} 1e+09
npu_cooling_device_state{cooling_device="pwm-fan"} 3
npu_cooling_device_state{cooling_device="thermal-cpufreq-0"} 0
other{a="b"} 1
"""
WANTED = {line.split("{")[0] for line in PAGE.splitlines() if line.startswith("npu_")}


def test_a_page_becomes_a_sample() -> None:
    """Everything the machine needs is found, trips without their numbers."""
    sample = node_sample(parse(PAGE, WANTED))

    (device,) = sample.devices
    assert (device.device, device.model, device.cores) == ("npu0", "rk3588", 3)
    assert (device.celsius, device.clock_hertz) == (61.9, 1e9)
    assert [(trip.kind, trip.celsius) for trip in sample.trips] == [
        ("passive", 75),
        ("passive", 85),
    ]
    assert sample.mitigating is False
    assert sample.malformed == 0


def test_fans_do_not_mitigate() -> None:
    """A running fan is cooling, not throttling."""
    page = parse('npu_cooling_device_state{cooling_device="pwm-fan"} 3\n', WANTED)

    assert node_sample(page).mitigating is None


def test_a_device_nobody_announced_is_ignored() -> None:
    """Temperatures without npu_info, and identifiers outside the grammar, lead to nothing."""
    text = (
        'npu_temperature_celsius{device="npu7",zone="x"} 99\n'
        'npu_info{device="../../x",vendor="rockchip"} 1\n'
        'npu_info{device="npu0-s1",vendor="rockchip"} 1\n'
    )

    assert node_sample(parse(text, WANTED)).devices == ()


def test_malformed_lines_are_counted_and_left_out() -> None:
    """NaN, open quotes, doubled labels and endless lines hide only themselves."""
    lines = [
        'npu_temperature_celsius{device="npu0"} NaN',
        'npu_temperature_celsius{device="npu0} 50',
        'npu_temperature_celsius{device="npu0",device="npu1"} 50',
        'npu_temperature_celsius{device="npu0"} fifty',
        "npu_temperature_celsius",
        'npu_temperature_celsius{device="' + "x" * 100_000 + '"} 50',
        'npu_temperature_celsius{device="npu0"} 50',
    ]

    page = parse("\n".join(lines), WANTED)

    assert (len(page.samples), page.malformed) == (1, 6)


def test_the_number_of_samples_is_bounded() -> None:
    """A page of nothing but wanted lines takes bounded memory."""
    page = parse('npu_frequency_hertz{device="npu0"} 1\n' * (SAMPLE_LIMIT + 10), WANTED)

    assert (len(page.samples), page.malformed) == (SAMPLE_LIMIT, 10)


@given(st.text(max_size=400))
def test_no_text_breaks_the_parser(text: str) -> None:
    """Whatever is read, the result is finite numbers or nothing."""
    page = parse("npu_frequency_hertz{" + text + "\n" + text, WANTED | {text[:5]})

    assert all(math.isfinite(sample.value) for sample in page.samples)


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.text(max_size=20), min_size=1))
def test_labels_are_read_as_prometheus_writes_them(labels: dict[str, str]) -> None:
    """For what the client library writes, this parser and the library's agree."""
    registry = CollectorRegistry()
    Gauge("wanted", "h", list(labels), registry=registry).labels(**labels).set(2.5)
    text = generate_latest(registry).decode()

    (sample,) = parse(text, {"wanted"}).samples

    (family,) = text_string_to_metric_families(text)
    assert dict(sample.labels) == family.samples[0].labels
    assert sample.value == 2.5


def at(busy: float, sampled: float) -> DeviceSample:
    return DeviceSample(
        device="npu0",
        vendor="rockchip",
        model="rk3588",
        busy_seconds={"0": busy, "1": 0.0},
        sampled_seconds={"0": sampled, "1": sampled},
    )


def test_busy_is_that_of_the_busiest_core() -> None:
    """One core at 80 % makes the NPU 80 % busy: all cores share a clock."""
    assert busy_ratio(at(0, 0), at(4, 5)) == 0.8


def test_counters_that_start_over_say_nothing() -> None:
    """An exporter restart is neither idle nor busy."""
    assert busy_ratio(None, at(4, 5)) is None
    assert busy_ratio(at(100, 100), at(1, 1)) is None


def test_hardware_without_driver_is_read() -> None:
    """Reasons that hold, once each."""
    lines = [
        'npu_hardware_present{reason="driver_not_bound"} 1',
        'npu_hardware_present{reason=""} 1',
    ]

    assert node_sample(parse("\n".join(lines), {"npu_hardware_present"})).hardware == (
        "driver_not_bound",
    )

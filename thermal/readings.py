"""What an exporter page says about the NPUs of its node."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from npu import ids, names
from npu.thresholds import Trip
from thermal.exposition import Page, Sample

WANTED = frozenset(
    {
        names.METRIC_INFO,
        names.METRIC_TEMPERATURE,
        names.METRIC_TEMPERATURE_LIMIT,
        names.METRIC_CORE_BUSY,
        names.METRIC_CORE_SAMPLED,
        names.METRIC_FREQUENCY,
        names.METRIC_COOLING_STATE,
        names.METRIC_HARDWARE_PRESENT,
    }
)

_DEVICE_LIMIT = 64
_TEXT_LIMIT = 63
_NUMBERED = re.compile(r"-[0-9]+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSample:
    """One NPU at one moment. ``busy_seconds`` and ``sampled_seconds`` are counters by core."""

    device: str
    vendor: str
    model: str
    driver: str | None = None
    driver_version: str | None = None
    cores: int | None = None
    simulated: bool = False
    celsius: float | None = None
    clock_hertz: float | None = None
    busy_seconds: Mapping[str, float] = field(default_factory=dict)
    sampled_seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSample:
    """One page. ``mitigating`` is None where no cooling device but fans was seen.

    ``hardware`` tells why NPUs that are present have no usable driver.
    """

    devices: tuple[DeviceSample, ...] = ()
    trips: tuple[Trip, ...] = ()
    mitigating: bool | None = None
    hardware: tuple[str, ...] = ()
    malformed: int = 0


def node_sample(page: Page) -> NodeSample:
    """Gather a page's samples by device; samples of devices without ``npu_info`` are left out."""
    by_name: dict[str, list[Sample]] = {}
    for sample in page.samples:
        by_name.setdefault(sample.name, []).append(sample)
    temperature = _by_device(by_name.get(names.METRIC_TEMPERATURE, []))
    clock = _by_device(by_name.get(names.METRIC_FREQUENCY, []))
    busy = _by_core(by_name.get(names.METRIC_CORE_BUSY, []))
    sampled = _by_core(by_name.get(names.METRIC_CORE_SAMPLED, []))
    devices: dict[str, DeviceSample] = {}
    for sample in by_name.get(names.METRIC_INFO, []):
        labels = {name: value[:_TEXT_LIMIT] for name, value in sample.labels.items()}
        device = labels.get("device", "")
        if not _is_device(device) or device in devices or len(devices) >= _DEVICE_LIMIT:
            continue
        devices[device] = DeviceSample(
            device=device,
            vendor=labels.get("vendor", ""),
            model=labels.get("model", ""),
            driver=labels.get("driver") or None,
            driver_version=labels.get("driver_version") or None,
            cores=_count(labels.get("cores", "")),
            simulated=labels.get("simulated") == "true",
            celsius=temperature.get(device),
            clock_hertz=clock.get(device),
            busy_seconds=busy.get(device, {}),
            sampled_seconds=sampled.get(device, {}),
        )
    return NodeSample(
        devices=tuple(devices[name] for name in sorted(devices, key=ids.sort_key)),
        trips=tuple(_trip(s) for s in by_name.get(names.METRIC_TEMPERATURE_LIMIT, [])),
        mitigating=_mitigating(by_name.get(names.METRIC_COOLING_STATE, [])),
        hardware=_reasons(by_name.get(names.METRIC_HARDWARE_PRESENT, [])),
        malformed=page.malformed,
    )


def busy_ratio(before: DeviceSample | None, now: DeviceSample) -> float | None:
    """Return the busy share of the busiest core between two samples, None where unknown.

    The busiest core counts because all cores share one clock. Counters that went back (exporter
    restart) give None.
    """
    if before is None:
        return None
    ratios = []
    for core, busy in now.busy_seconds.items():
        covered = now.sampled_seconds.get(core, 0.0) - before.sampled_seconds.get(core, 0.0)
        worked = busy - before.busy_seconds.get(core, busy)
        if covered > 0 and worked >= 0:
            ratios.append(min(1.0, worked / covered))
    return max(ratios, default=None)


def _is_device(text: str) -> bool:
    try:
        return ids.device_of(text) == text
    except ValueError:
        return False


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _by_device(samples: list[Sample]) -> dict[str, float]:
    """Return the highest value per device: a device judged by two zones is as hot as the hotter."""
    values: dict[str, float] = {}
    for sample in samples:
        device = sample.labels.get("device", "")
        values[device] = max(sample.value, values.get(device, sample.value))
    return values


def _by_core(samples: list[Sample]) -> dict[str, dict[str, float]]:
    values: dict[str, dict[str, float]] = {}
    for sample in samples:
        device = values.setdefault(sample.labels.get("device", ""), {})
        device[sample.labels.get("core", "")] = sample.value
    return values


def _reasons(samples: list[Sample]) -> tuple[str, ...]:
    found = {sample.labels.get("reason", "")[:_TEXT_LIMIT] for sample in samples if sample.value}
    return tuple(sorted(found - {""})[:_DEVICE_LIMIT])


def _trip(sample: Sample) -> Trip:
    # The exporter numbers trips of one kind (passive-0, passive-1) and zones of one type (gpu-2).
    return Trip(
        zone=sample.labels.get("zone", ""),
        kind=_NUMBERED.sub("", sample.labels.get("trip", "")),
        celsius=sample.value,
    )


def _mitigating(samples: list[Sample]) -> bool | None:
    states = [
        sample.value
        for sample in samples
        if "fan" not in sample.labels.get("cooling_device", "fan").lower()
    ]
    return any(state > 0 for state in states) if states else None

"""``kubectl npu top``: each device now, with load, heat, clock and holders. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kubectl_npu.exposition import Sample
from kubectl_npu.picture import Picture, counts, holders, is_ready, name_of

#: The metrics that a row needs: only these are asked for.
METRICS = (
    "npu_info",
    "npu_up",
    "npu_core_busy_seconds_total",
    "npu_core_sampled_seconds_total",
    "npu_temperature_celsius",
    "npu_frequency_hertz",
    "npu_frequency_hardware_max_hertz",
    "npu_device_allocation_info",
    "npu_hardware_present",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """One device; None is "not known".

    ``load`` is the busy ratio per core, ``limit_celsius`` where the guard stops new work,
    ``problem`` why there are no figures.
    """

    node: str
    device: str | None
    model: str | None = None
    load: tuple[float | None, ...] = ()
    celsius: float | None = None
    limit_celsius: float | None = None
    state: str | None = None
    hertz: float | None = None
    hardware_max_hertz: float | None = None
    holders: tuple[str, ...] = ()
    problem: str = ""


def rows(picture: Picture) -> Iterator[DeviceRow]:
    """Yield a row per device, and one for each NPU node that tells nothing."""
    for node in sorted(picture.nodes, key=name_of):
        name = name_of(node)
        found = list(_devices(picture, name))
        yield from found
        if not found and any(counts(node, "capacity", picture.resources).values()):
            yield DeviceRow(node=name, device=None, problem=_silence(picture, name))
        if not is_ready(node) and found:
            yield DeviceRow(node=name, device=None, problem="the node is not Ready")


def _silence(picture: Picture, node: str) -> str:
    ready = all(is_ready(item) for item in picture.nodes if name_of(item) == node)
    if not ready:
        return "the node is not Ready"
    return "no exporter answers" if node not in picture.metrics else "the exporter sees no NPU"


def _devices(picture: Picture, node: str) -> Iterator[DeviceRow]:
    now = picture.metrics.get(node, ())
    held = holders(picture, node)
    guard = picture.guard.get(node, {})
    states = {device["device"]: device.get("state") for device in guard.get("devices", ())}
    for sample in now:
        if sample.name == "npu_hardware_present":
            reason = sample.labels.get("reason", "")
            yield DeviceRow(node=node, device=None, problem=f"NPU without a driver: {reason}")
        if sample.name != "npu_info":
            continue
        device = sample.labels.get("device", "")
        figures = _figures(now, device)
        yield DeviceRow(
            node=node,
            device=device,
            model=sample.labels.get("model"),
            load=_load(picture.before.get(node, ()), now, device),
            celsius=figures.get("npu_temperature_celsius"),
            limit_celsius=guard.get("thresholdsCelsius", {}).get("hot"),
            state=states.get(device),
            hertz=figures.get("npu_frequency_hertz"),
            hardware_max_hertz=figures.get("npu_frequency_hardware_max_hertz"),
            holders=tuple(held.get(device, ())),
            problem="" if figures.get("npu_up", 1) else "the driver's files cannot be read",
        )


def _figures(samples: Sequence[Sample], device: str) -> dict[str, float]:
    return {
        sample.name: sample.value for sample in samples if sample.labels.get("device") == device
    }


def _load(before: Sequence[Sample], now: Sequence[Sample], device: str) -> tuple[float | None, ...]:
    """Return the busy ratio of each core between two looks; None where nothing was sampled."""
    first = _cores(before, device)
    loads: list[float | None] = []
    for core, (busy, sampled) in sorted(_cores(now, device).items()):
        earlier = first.get(core)
        covered = sampled - earlier[1] if earlier else 0.0
        loads.append((busy - earlier[0]) / covered if earlier and covered > 0 else None)
    return tuple(loads) if before else ()


def _cores(samples: Sequence[Sample], device: str) -> Mapping[int, tuple[float, float]]:
    seconds: dict[int, list[float]] = {}
    for sample in samples:
        core = sample.labels.get("core", "")
        if sample.labels.get("device") == device and core.isascii() and core.isdigit():
            pair = seconds.setdefault(int(core), [0.0, 0.0])
            pair["sampled" in sample.name] = sample.value
    return {core: (pair[0], pair[1]) for core, pair in seconds.items()}

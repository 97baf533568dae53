"""What a scan found, as data for programs and as a table for people."""

from collections.abc import Sequence

from npu import thermal
from npu.errors import NpuError
from npu.host import Host
from npu.model import Inventory, Npu
from npu.names import SIMULATED_MARKER
from npu.scan import driver_of

_MILLI = 1000
_MEGA = 1_000_000
_UNKNOWN = "-"


def as_data(host: Host, inventory: Inventory) -> dict[str, list[dict[str, object]]]:
    """Return inventory and present readings; a fact that cannot be read is None.

    Node paths are those that kubelet and container runtime use.
    """
    return {
        "npus": [_npu(host, npu) for npu in inventory.npus],
        "refused": [
            {"what": item.what, "why": item.why, "detail": item.detail, "model": item.model}
            for item in inventory.refused
        ],
    }


def as_text(host: Host, inventory: Inventory) -> str:
    """Return a table of the NPUs, and why hardware that is present is not offered."""
    lines: list[str] = []
    if inventory.npus:
        rows = [_HEADER, *(_row(_npu(host, npu)) for npu in inventory.npus)]
        lines += _aligned(rows)
        for npu in inventory.npus:
            lines.append("")
            lines += _details(host, npu)
    else:
        lines.append("no usable NPU on this board")
    for item in inventory.refused:
        lines += ["", f"refused: {item.what} ({item.why})", f"  {item.detail}"]
    if host.exists(SIMULATED_MARKER):
        lines += ["", "this board is simulated"]
    return "\n".join(lines)


def _npu(host: Host, npu: Npu) -> dict[str, object]:
    driver = driver_of(npu)
    try:
        loads = driver.load(host, npu)
    except NpuError:
        loads = ()
    clock = driver.clock(host, npu)
    return {
        "id": npu.id,
        "vendor": npu.vendor,
        "model": npu.model,
        "driver": npu.driver,
        "mode": npu.mode,
        "driver_version": npu.driver_version,
        "cores": npu.cores,
        "unit": npu.unit,
        "board": npu.board,
        "nodes": [host.on_node(node.stable_path) for node in npu.nodes],
        "load": [core.ratio for core in loads] if loads else None,
        "load_is_estimate": npu.load_is_estimate,
        "temperature_celsius": _celsius(host, npu),
        "zone": npu.zone,
        "clock_hertz": clock.current_hertz,
        "clock_maximum_hertz": clock.maximum_hertz,
        "clock_hardware_maximum_hertz": clock.hardware_maximum_hertz,
        "powered": driver.powered(host, npu),
        "libraries": [
            {"name": item.name, "path": host.on_node(item.path), "version": item.version}
            for item in npu.libraries
        ],
        "simulated": host.exists(SIMULATED_MARKER),
    }


def _celsius(host: Host, npu: Npu) -> float | None:
    for zone in thermal.zones(host):
        if zone.type == npu.zone:
            try:
                return thermal.millicelsius(host, zone) / _MILLI
            except NpuError:
                return None
    return None


_HEADER = ("ID", "MODEL", "DRIVER", "VERSION", "CORES", "LOAD", "TEMPERATURE", "CLOCK")


def _row(npu: dict[str, object]) -> tuple[str, ...]:
    load, celsius, clock = npu["load"], npu["temperature_celsius"], npu["clock_hertz"]
    return (
        str(npu["id"]),
        str(npu["model"]),
        f"{npu['driver']} ({npu['mode']})",
        _shown(npu["driver_version"]),
        _shown(npu["cores"]),
        " ".join(f"{ratio:.0%}" for ratio in load) if isinstance(load, list) else _UNKNOWN,
        f"{celsius:.1f} °C" if isinstance(celsius, float) else _UNKNOWN,
        f"{clock / _MEGA:.0f} MHz" if isinstance(clock, int) else _UNKNOWN,
    )


def _details(host: Host, npu: Npu) -> list[str]:
    nodes = ", ".join(host.on_node(node.stable_path) for node in npu.nodes)
    zone = npu.zone or "none"
    if npu.zone is not None and not npu.zone_is_npu:
        zone += " (no sensor at the NPU itself)"
    found = [f"{item.path} {item.version or '(unknown version)'}" for item in npu.libraries]
    return [
        f"{npu.id}: {npu.board or 'unknown board'}, platform device {npu.unit}",
        f"  device nodes  {nodes}",
        f"  thermal zone  {zone}",
        f"  libraries     {', '.join(found) or 'none found'}",
    ]


def _shown(value: object) -> str:
    return _UNKNOWN if value is None else str(value)


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]

"""The table that ``npu-smi info`` prints, the only telemetry of Ascend chips without their library.

Two rows are one chip. Which value stands where is read from the header: versions differ in widths,
in columns (no HBM on 310, 310B and 310P) and in what they call the number of the device node. The
number of a *card* in the first row is not that number; it may be large and have gaps.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from npu.ids import ascend_device_id
from npu.model import Npu

Health = Literal["ok", "warning", "alarm", "critical", "unknown"]
HEALTHS: Final[tuple[Health, ...]] = ("ok", "warning", "alarm", "critical", "unknown")

#: Longest output taken; a table of 64 chips and their processes is below 40 KiB.
LIMIT_BYTES: Final = 1 << 18
_CHIP_LIMIT = 256
_LINE_LIMIT = 400
_CELLS_PER_ROW = 3

#: Beyond these a value is a sentinel (the driver has -275 for "no sample"), not a temperature.
_CELSIUS = (-40.0, 150.0)
_WATTS = (0.0, 10_000.0)
_PERCENT = (0.0, 1000.0)
_MEGABYTE = 1 << 20
_NUMBER = re.compile(r"-?[0-9]{1,9}(?:\.[0-9]{1,6})?")
_PAIR = re.compile(r"([0-9]{1,9})\s*/\s*([0-9]{1,9})")
_VALUES = re.compile(r"[0-9]+\s*/\s*[0-9]+|\S+")
_BUS = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")
_ABSENT = frozenset({"NA", "N/A", "-", ""})
#: What versions call the number of ``/dev/davinci<N>``.
_DEVICE_COLUMNS = ("Phy-ID", "Device")
#: The controller of a card has rows of its own in some versions; it is no chip.
_CONTROLLER = "MCU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A memory of a chip, bytes."""

    used_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipReading:
    """One chip; what is not printed, or is no plausible value, is None.

    ``npu_id`` and ``chip_id`` are the tool's numbers for a card and a chip on it, ``device`` the
    number of the device node. ``percent`` is the load of the AI cores.
    """

    npu_id: int
    chip_id: int
    name: str
    health: Health
    device: int | None = None
    bus_id: str | None = None
    watts: float | None = None
    celsius: float | None = None
    percent: float | None = None
    memory: Memory | None = None
    hbm: Memory | None = None


def parse(text: str) -> tuple[ChipReading, ...]:
    """Return the chips of a table; what cannot be read is left out. Never raises."""
    found: list[ChipReading] = []
    upper: list[str] | None = None
    lower: list[str] | None = None
    pending: list[str] | None = None
    for line in text[:LIMIT_BYTES].splitlines():
        cells = [cell.strip() for cell in line[:_LINE_LIMIT].split("|")[1:]]
        if cells and not cells[-1]:
            cells.pop()
        words = cells[0].split() if cells else []
        if not words:
            continue
        if words[0] == "NPU":
            # The header of the chips names them; that of processes ends the chips.
            upper, lower, pending = (cells if "Name" in words else None), None, None
        elif words[0] == "Chip" and upper is not None:
            lower = cells
        elif upper is None or lower is None or len(cells) < _CELLS_PER_ROW:
            continue
        elif pending is not None and _is_lower(cells[1]):
            chip = _chip(_row(upper, pending), _row(lower, cells))
            pending = None
            if chip is not None and len(found) < _CHIP_LIMIT:
                found.append(chip)
        else:
            pending = cells
    return tuple(found)


def attribute(
    readings: Iterable[ChipReading], npus: Sequence[Npu]
) -> tuple[dict[str, ChipReading], int]:
    """Return readings by device identifier, and how many belong to no device of ``npus``.

    A chip is known by the number of its node, else by its bus address, else, on cards of one chip,
    by the number of the card. Two readings for one device tell nothing about either.
    """
    readings = list(readings)
    identifiers = {npu.id for npu in npus}
    units: dict[str, list[str]] = {}
    for npu in npus:
        units.setdefault(npu.unit.lower(), []).append(npu.id)
    single = len({reading.npu_id for reading in readings}) == len(readings)
    found: dict[str, ChipReading] = {}
    lost = 0
    for reading in readings:
        at_bus = units.get((reading.bus_id or "").lower(), [])
        identifier: str | None = None
        if reading.device is not None:
            identifier = ascend_device_id(reading.device)
        elif len(at_bus) == 1:
            identifier = at_bus[0]
        elif single:
            identifier = ascend_device_id(reading.npu_id)
        if identifier not in identifiers:
            lost += 1
        elif identifier in found:
            lost += 1
            identifiers.discard(identifier)
        else:
            found[identifier] = reading
    return {name: reading for name, reading in found.items() if name in identifiers}, lost


def _is_lower(cell: str) -> bool:
    """Tell whether the second cell of a row is a bus address, as in the lower row of a chip."""
    return cell in _ABSENT or _BUS.fullmatch(cell) is not None


def _row(header: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    """Return the values of a row by column name; a cell that does not fit its header has none."""
    values: dict[str, str] = {}
    for title, cell in zip(header, cells, strict=False):
        columns = title.split()
        if columns[:1] == ["NPU"]:
            # The name of a chip may be several words.
            first, _, rest = cell.partition(" ")
            values |= {"NPU": first, "Name": rest.strip()}
            continue
        found = [cell] if len(columns) == 1 else _VALUES.findall(cell)
        if len(found) == len(columns):
            values |= dict(zip(columns, found, strict=True))
    return values


def _chip(upper: Mapping[str, str], lower: Mapping[str, str]) -> ChipReading | None:
    npu_id, chip_id = _integer(upper.get("NPU")), _integer(lower.get("Chip"))
    name = upper.get("Name", "")
    if npu_id is None or chip_id is None or name.upper().startswith(_CONTROLLER):
        return None
    columns = [_integer(lower[title]) for title in _DEVICE_COLUMNS if title in lower]
    bus = lower.get("Bus-Id", "")
    return ChipReading(
        npu_id=npu_id,
        chip_id=chip_id,
        name=name[:32],
        health=_health(upper.get("Health", "")),
        device=columns[0] if columns else None,
        bus_id=bus if _BUS.fullmatch(bus) else None,
        watts=_number(upper.get("Power(W)"), _WATTS),
        celsius=_number(upper.get("Temp(C)"), _CELSIUS),
        percent=_number(lower.get("AICore(%)"), _PERCENT),
        memory=_memory(lower.get("Memory-Usage(MB)")),
        hbm=_memory(lower.get("HBM-Usage(MB)")),
    )


def _health(text: str) -> Health:
    word = text.lower()
    return next((known for known in HEALTHS if known == word), "unknown")


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,9}", text) else None


def _number(text: str | None, bounds: tuple[float, float]) -> float | None:
    if text is None or _NUMBER.fullmatch(text) is None:
        return None
    value = float(text)
    return value if bounds[0] <= value <= bounds[1] else None


def _memory(text: str | None) -> Memory | None:
    """Return a memory; a size of 0 is how chips without it are printed."""
    match = None if text is None else _PAIR.fullmatch(text)
    if match is None or int(match[2]) == 0 or int(match[1]) > int(match[2]):
        return None
    return Memory(used_bytes=int(match[1]) * _MEGABYTE, size_bytes=int(match[2]) * _MEGABYTE)

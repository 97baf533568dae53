"""Rows and findings for people (with ``rich`` or as plain text) and for programs (JSON)."""

import io
import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from kubectl_npu.finding import Finding
from kubectl_npu.top import DeviceRow
from kubectl_npu.who import HolderRow

_GIGA, _MEGA = 1e9, 1e6
_NONE = "-"
#: What a terminal takes for a command: names and messages are whatever programs wrote.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
#: Colours of states and levels.
_COLOURS: Mapping[str, str] = {
    "ok": "green", "warn": "yellow", "fail": "bold red", "cool": "green", "warm": "yellow",
    "recovering": "yellow", "hot": "red", "critical": "bold red", "emergency": "bold red",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What is printed: all cells are text."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def devices(rows: Sequence[DeviceRow]) -> Table:
    """Return ``top`` as a table."""
    cells = [
        (
            row.node,
            row.device or _NONE,
            row.model or _NONE,
            _load(row.load),
            _heat(row.celsius, row.limit_celsius),
            row.state or _NONE,
            _clock(row.hertz, row.hardware_max_hertz),
            row.problem or ", ".join(row.holders) or _NONE,
        )
        for row in rows
    ]
    columns = ("NODE", "DEVICE", "MODEL", "LOAD", "HEAT", "STATE", "CLOCK", "HELD BY")
    return Table(columns=columns, rows=cells)


def holders(rows: Sequence[HolderRow]) -> Table:
    """Return ``who`` as a table."""
    cells = [
        (
            row.node,
            "?" if row.devices is None else ", ".join(row.devices) or _NONE,
            row.team,
            row.pod,
            row.asked,
            row.owner or _NONE,
            row.since or _NONE,
            row.used or _NONE,
        )
        for row in rows
    ]
    columns = ("NODE", "DEVICE", "TEAM", "POD", "ASKED", "OWNER", "SINCE", "QUOTA")
    return Table(columns=columns, rows=cells)


def findings_text(findings: Sequence[Finding]) -> str:
    """Return a line per finding, the remedy below it."""
    lines: list[str] = []
    width = max((len(finding.check) for finding in findings), default=0)
    for finding in findings:
        lines.append(f"{finding.level:<4}  {finding.check:<{width}}  {_harmless(finding.text)}")
        if finding.remedy:
            lines.append(f"{'':<{width + 6}}  -> {_harmless(finding.remedy)}")
    return "\n".join(lines) + "\n"


def as_json(items: Sequence[DeviceRow | HolderRow | Finding], missing: Sequence[str]) -> str:
    """Return rows or findings as one object, with what could not be read."""
    data = {
        "items": [asdict(item) for item in items],
        "missing": list(missing),
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def plain(table: Table) -> str:
    """Return a table in columns, as kubectl writes it."""
    lines = [table.columns, *([_harmless(cell) for cell in row] for row in table.rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.columns))]
    return "".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in lines
    )


def pretty(table: Table) -> str:
    """Return a table for this output: coloured on a terminal that can, with ``rich`` installed."""
    if not sys.stdout.isatty():
        return plain(table)
    try:
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text
    except ImportError:
        return plain(table)
    shown = RichTable(*table.columns, box=None, pad_edge=False, header_style="bold")
    for row in table.rows:
        shown.add_row(*(Text(_harmless(cell), style=_COLOURS.get(cell, "")) for cell in row))
    width = shutil.get_terminal_size().columns
    console = Console(file=io.StringIO(), force_terminal=True, width=width)
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


def _harmless(text: str) -> str:
    return _CONTROL.sub(" ", text)


def _load(load: Sequence[float | None]) -> str:
    return " ".join(_NONE if part is None else f"{part:.0%}" for part in load) or _NONE


def _heat(celsius: float | None, limit: float | None) -> str:
    if celsius is None:
        return _NONE
    return f"{celsius:.1f} °C" if limit is None else f"{celsius:.1f} of {limit:.0f} °C"


def _clock(hertz: float | None, most: float | None) -> str:
    if hertz is None:
        return _NONE
    text = f"{hertz / _GIGA:.2f} GHz" if hertz >= _GIGA else f"{hertz / _MEGA:.0f} MHz"
    return f"{text} of {most / _GIGA:.2f}" if most and most > hertz else text

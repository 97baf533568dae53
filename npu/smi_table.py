"""A table as ``npu-smi info`` prints it, and a program that prints it: for simulated boards."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from npu.catalogue import Chips

PROGRAM_PATH: Final = "/usr/local/bin/npu-smi"
#: What the program prints.
TABLE_PATH: Final = "/usr/local/bin/npu-smi.txt"
PROGRAM: Final = b'''#!/usr/bin/env python3
"""Stands in for npu-smi on a simulated board: prints the table beside it."""

import sys
from pathlib import Path

sys.stdout.write(Path(__file__).with_suffix(".txt").read_text())
'''

_WIDTHS = (25, 15, 54)
_RULE = f"+{'+'.join('-' * width for width in _WIDTHS)}+"
_DOUBLE_RULE = _RULE.replace("-", "=")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipState:
    """What a simulated chip does now."""

    celsius: float
    percent: int


def render(chips: Chips, states: Sequence[ChipState]) -> bytes:
    """Return the table for chips that are in ``states``, one per device node from 0 on."""
    memories = "Memory-Usage(MB)" + ("  HBM-Usage(MB)" if chips.hbm_megabytes else "")
    title = f"npu-smi {chips.version:<30} Version: {chips.version}"
    upper = "Power(W)    Temp(C)           Hugepages-Usage(page)"
    lines = [
        "+" + "-" * (len(_RULE) - 2) + "+",
        f"| {title:<{len(_RULE) - 4}} |",
        _RULE,
        _line("NPU     Name", "Health", upper),
        _line("Chip    Device", "Bus-Id", f"AICore(%)   {memories}"),
        _DOUBLE_RULE,
    ]
    for device, state in enumerate(states):
        card, chip = divmod(device, chips.per_card)
        # Only the first chip of a card measures the power of both.
        watts = chips.idle_watts + (chips.busy_watts - chips.idle_watts) * state.percent / 100
        power = f"{watts:.1f}" if chip == 0 else "-"
        used = f"{_used(chips.memory_megabytes, state)} / {chips.memory_megabytes}"
        if chips.hbm_megabytes:
            used += f"    {_used(chips.hbm_megabytes, state)} / {chips.hbm_megabytes}"
        values = f"{power:<11} {state.celsius:<17.0f} 0    / 0"
        lines += [
            _line(f"{chips.first_npu_id + card:<7} {chips.name}", "OK", values),
            _line(f"{chip:<7} {device}", "NA", f"{state.percent:<11} {used}"),
            _RULE,
        ]
    return "\n".join([*lines, ""]).encode()


def _line(*cells: str) -> str:
    padded = (f" {cell:<{width - 2}} " for cell, width in zip(cells, _WIDTHS, strict=True))
    return f"|{'|'.join(padded)}|"


def _used(megabytes: int, state: ChipState) -> int:
    return megabytes * (80 if state.percent else 5) // 100

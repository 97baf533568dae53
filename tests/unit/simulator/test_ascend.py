"""Simulated Ascend boards: what Pods hold is what npu-smi shows."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from npu import catalogue
from npu.drivers.ascend_smi import ChipReading, parse
from npu.scan import scan

if TYPE_CHECKING:
    from tests.unit.simulator.conftest import MakeNode, Node

BOARDS = [
    name
    for name in catalogue.names()
    if (simulation := catalogue.load(name).simulation) is not None and simulation.chips is not None
]


def shown(node: Node) -> list[ChipReading]:
    """Run the board's npu-smi as the exporter does."""
    program = node.directory / "usr/local/bin/npu-smi"
    done = subprocess.run(
        [sys.executable, "-I", program, "info"], capture_output=True, check=True, text=True
    )
    return list(parse(done.stdout))


@pytest.mark.parametrize("board", BOARDS)
def test_board_is_found_and_its_program_shows_each_chip(make_node: MakeNode, board: str) -> None:
    """Every chip of the scan has a reading, by the number of its node."""
    node = make_node(board)
    npus = scan(node.host).npus
    assert [f"davinci{chip.device}" for chip in shown(node)] == [npu.id for npu in npus]
    assert node.player.problems() == []


def test_held_chips_work_and_heat_up_and_others_do_not(make_node: MakeNode) -> None:
    """Load and heat are each chip's own."""
    node = make_node("ascend910b")
    node.hold("davinci2", "davinci5", resource="huawei.com/Ascend910")
    node.run(120)
    chips = shown(node)
    assert [chip.percent for chip in chips] == [0, 0, 90, 0, 0, 90, 0, 0]
    assert chips[2].celsius is not None
    assert chips[0].celsius is not None
    assert chips[2].celsius > chips[0].celsius + 15
    assert chips[2].watts is not None
    assert chips[2].watts > 200


def test_control_file_dictates_chips(make_node: MakeNode) -> None:
    """One ratio per chip, one temperature for all."""
    node = make_node("ascend310p")
    control = {"load": [0.25], "celsius": 97}
    (node.directory / "control.json").write_text(json.dumps(control))
    node.run(1)
    assert [(chip.percent, chip.celsius) for chip in shown(node)] == [(25, 97), (0, 97)]

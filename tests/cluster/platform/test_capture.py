"""A board is captured through the device plugin's Pod, as the documentation says."""

import re
import shlex
from pathlib import Path

import pytest

from ci.demo.story import NAMESPACE
from npu import catalogue
from npu.host import Host
from npu.layout import expand
from npu.scan import scan
from npu.tree import SIMULATED_DEVICE, materialise
from tests.cluster.platform.installed import Platform
from tests.unit.docs.pages import ROOT, commands

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def documented() -> list[str]:
    """Return the command of docs/new-board.md, as words; the file that it writes is left out."""
    (command,) = [
        line for line in commands(ROOT / "docs" / "new-board.md") if line.startswith("kubectl exec")
    ]
    return shlex.split(command.partition(" > ")[0])[1:]


def test_capture_through_the_pod_is_the_board(platform: Platform, tmp_path: Path) -> None:
    """Nothing else is needed on the board, and the file says what the board said."""
    node = platform.boards[0]
    pod = platform.component("plugin", node)["metadata"]["name"]
    words = [re.sub(r"^npu-npu-platform-plugin-.*", pod, word) for word in documented()]
    words = [node if word == "NODE" else word for word in words]
    assert pod in words
    assert NAMESPACE in words
    captured = platform.kube.kubectl(*words)

    (tmp_path / "my-board.yaml").write_text(captured)
    assert node not in captured
    tree = expand(catalogue.load("my-board", tmp_path), SIMULATED_DEVICE)
    materialise(tree, tmp_path / "again", device_nodes=True)
    again, board = Host(tmp_path / "again"), Host(platform.cluster.node_board(node))
    assert scan(again) == scan(board)
    assert scan(again).npus[0].cores == 3

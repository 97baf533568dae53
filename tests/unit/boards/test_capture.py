"""A captured machine is the same board again, and says nothing that identifies the machine."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from npu import capture, catalogue
from npu.capture import describe
from npu.errors import BoardError
from npu.host import Host, read_bounded
from npu.layout import expand
from npu.report import as_text
from npu.scan import scan
from npu.tree import SIMULATED_DEVICE, materialise
from simulator.board import SimulatedBoard
from simulator.control import Control
from simulator.settings import Settings
from tests.unit.boards.looking import TreeHost
from tests.unit.boards.test_boards import host_of

REPOSITORY = Path(__file__).parents[3]


def again(text: str, name: str, directory: Path) -> Host:
    """Write a capture as a board file and the board as a tree."""
    (directory / f"{name}.yaml").write_text(text)
    tree = expand(catalogue.load(name, directory))
    materialise(tree, directory / "again", device_nodes=False)
    return TreeHost(directory / "again", tree, {})


@pytest.mark.parametrize("name", catalogue.names())
def test_a_captured_board_is_the_same_board(name: str, tmp_path: Path) -> None:
    """Whatever the platform finds on the machine it finds on the fixture."""
    host = host_of(catalogue.load(name), tmp_path / "machine")
    copy = again(describe(host, "copy"), "copy", tmp_path)
    assert as_text(copy, scan(copy)) == as_text(host, scan(host))
    assert scan(copy) == scan(host)


@pytest.mark.parametrize("name", ["rk3588", "rk3588-rocket", "rk3576-rocket"])
def test_a_captured_board_can_be_played(name: str, tmp_path: Path) -> None:
    """A new board goes into the catalogue as it was captured, and the simulator plays those."""
    host = host_of(catalogue.load(name), tmp_path / "machine")
    (tmp_path / "copy.yaml").write_text(describe(host, "copy"))
    board = catalogue.load("copy", tmp_path)
    assert board.simulation is not None
    played = SimulatedBoard(board, board.simulation, Settings())
    window = played.window(played.cores, Control(), 1.0)
    assert window.files.keys() <= expand(board).files.keys()
    assert set(window.percents) == {90}


def test_text_of_any_kind_comes_back(tmp_path: Path) -> None:
    """YAML has no surrogates and forbids some plain characters: a board may show both."""
    machine = catalogue.load("rk3588")
    host = host_of(
        msgspec.structs.replace(machine, model="Rock \U0001f600 \x7f \u2028 \u00e9"), tmp_path
    )
    copy = again(describe(host, "copy"), "copy", tmp_path)
    assert as_text(copy, scan(copy)) == as_text(host, scan(host))


def test_nothing_that_identifies_a_machine_is_in_it(tmp_path: Path) -> None:
    """Serial numbers and command lines are not read; addresses and names are blotted out."""
    host = host_of(catalogue.load("rk3588"), tmp_path)
    for path, content in {
        "proc/cmdline": "root=PARTUUID=614e0000-0000-4b53-8000-1d28000054a9 secret",
        "sys/firmware/devicetree/base/serial-number": "fd18c94b8a4f5e2d",
        "sys/firmware/devicetree/base/model": "Radxa ROCK 5B of kitchen-node aa:bb:cc:dd:ee:ff",
        "etc/machine-id": "0123456789abcdef0123456789abcdef",
        "sys/module/rknpu/version": "0.9.8 192.168.17.4 614e0000-0000-4b53-8000-1d28000054a9\n",
    }.items():
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
    text = describe(host, "mine", {"kitchen-node", "rk"})
    for secret in ("secret", "fd18c94b", "aa:bb", "kitchen", "0123456789ab", "614e0000", "192.168"):
        assert secret not in text
    assert "rockchip,rk3588" in text


def test_a_machine_called_like_its_board_keeps_its_compatible_string(tmp_path: Path) -> None:
    """The usual host name of an image is no secret, and the board would be lost with it."""
    host = host_of(catalogue.load("rk3588"), tmp_path)
    assert "radxa,rock-5b" in describe(host, "mine", {"rock-5b"})


@pytest.mark.parametrize("name", ["rk3588", "rk3588-proc", "rk3588-rocket"])
def test_capturing_never_touches_the_npu(name: str, tmp_path: Path) -> None:
    """No file that wakes or may crash the NPU is read, and none twice a page long."""
    read: list[str] = []

    def reader(path: str, limit: int) -> bytes:
        read.append(path.removeprefix(str(tmp_path)))
        assert limit <= 4096
        assert stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116
        return read_bounded(path, limit)

    materialise(expand(catalogue.load(name)), tmp_path, device_nodes=False)
    describe(Host(tmp_path, reader=reader), "mine")
    assert read
    assert [path for path in read if re.search(r"^/dev/|rknpu/(freq|volt|mm)$", path)] == []


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    """A capture by somebody who is not root tells what it lacks, and how that failed."""
    board = catalogue.load("rk3588")
    tree = expand(board)
    materialise(tree, tmp_path, device_nodes=False)
    text = describe(TreeHost(tmp_path, tree, {"/sys/kernel/debug": 13}), "mine")
    assert "EACCES" in text
    assert "NPU load" not in text.replace("Could not be read", "")


def test_a_tree_too_large_for_a_board_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A description has an end, whatever is in the tree."""
    monkeypatch.setattr(capture, "MAX_FILES", 20)
    host = host_of(catalogue.load("rk3588"), tmp_path)
    with pytest.raises(BoardError, match="no board"):
        describe(host, "mine")


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    """A hostile tree cannot keep a capture going."""
    host = host_of(catalogue.load("rk3588"), tmp_path)
    card = tmp_path / "sys/class/drm/card7"
    card.symlink_to("card8")
    (tmp_path / "sys/class/drm/card8").symlink_to("card7")
    assert "rockchip,rk3588" in describe(host, "mine")


def test_a_played_capture_has_no_number_of_the_machine(tmp_path: Path) -> None:
    """Numbers in sysfs follow those of the simulated nodes."""
    host = host_of(catalogue.load("rk3588"), tmp_path / "machine")
    (tmp_path / "mine.yaml").write_text(describe(host, "mine"))
    tree = expand(catalogue.load("mine", tmp_path), SIMULATED_DEVICE)
    numbers = {content for path, content in tree.files.items() if path.endswith("/dev")}
    assert numbers == {b"10:229\n"}


def test_a_bare_python_is_enough(tmp_path: Path) -> None:
    """A board has no packages: scan and capture run with the standard library alone."""
    host_of(catalogue.load("rk3588"), tmp_path)
    program = (
        "import sys\n"
        "for name in ('msgspec', 'yaml', 'jinja2', 'grpc', 'prometheus_client'):\n"
        "    sys.modules[name] = None\n"
        "from npu.__main__ import main\n"
        f"sys.exit(main(['scan', '--root', {str(tmp_path)!r}])"
        f" or main(['capture', 'mine', '--root', {str(tmp_path)!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    assert 'name: "mine"' in done.stdout

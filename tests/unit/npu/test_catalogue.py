"""The catalogue is valid data, mistakes in it are named, and trees are written whole."""

import contextlib
import os
import stat
from pathlib import Path

import pytest

from npu import catalogue
from npu.errors import BoardError
from npu.host import Host
from npu.layout import expand, runtime_files
from npu.names import SIMULATED_MARKER
from npu.smi_table import PROGRAM_PATH, TABLE_PATH
from npu.tree import SIMULATED_DEVICE, materialise, update

HEATING = "{idle_celsius: 1, fast_celsius: 1, fast_seconds: 1, slow_celsius: 1, slow_seconds: 1}"
BASE = "name: {name}\ntitle: a board\nevidence: made up\n"


def _board(directory: Path, name: str, text: str) -> None:
    (directory / f"{name}.yaml").write_text(BASE.format(name=name) + text)


@pytest.mark.parametrize("name", catalogue.names())
def test_every_board_says_what_it_is_and_why_we_believe_it(name: str) -> None:
    """A board without evidence has no place in the catalogue."""
    board = catalogue.load(name)
    assert board.title
    assert board.evidence
    assert board.compatible or board.pci or board.nodes
    assert board.chip
    assert board.kernel


@pytest.mark.parametrize("name", catalogue.names())
def test_what_a_simulator_writes_exists_in_the_tree(name: str) -> None:
    """Dynamic files replace files of the tree, so their paths must be the tree's own."""
    board = catalogue.load(name)
    if board.simulation is None:
        return
    files = expand(board).files
    if board.simulation.chips is not None:
        assert {PROGRAM_PATH, TABLE_PATH} <= set(files)
        return
    assert {*board.simulation.load, *board.simulation.power} <= set(files)
    for unit in board.simulation.runtime:
        assert set(runtime_files(unit, "", 0, 0)) <= set(files)
    assert board.simulation.load or len(board.simulation.runtime) == board.simulation.cores
    if board.simulation.clock is not None:
        assert board.devices[board.simulation.clock].devfreq is not None
    if any(zone.type == "npu-thermal" for zone in board.zones):
        assert [zone.type for zone in board.zones if zone.coupling == 1.0] == ["npu-thermal"]


def test_links_of_every_board_lead_to_something(tmp_path: Path) -> None:
    """A tree is as closed as sysfs is."""
    for name in catalogue.names():
        materialise(expand(catalogue.load(name)), tmp_path / name, device_nodes=False)
        host = Host(tmp_path / name)
        dangling = [path for path in expand(catalogue.load(name)).links if not host.exists(path)]
        assert dangling == []


def test_extending_merges_replaces_and_removes(tmp_path: Path) -> None:
    """Mappings merge, null removes, lists are replaced, and a subtree can be taken away."""
    _board(tmp_path, "one", 'files: {/a: "1", /b: "1", /d/x: "1"}\ncompatible: [a, b]\n')
    _board(
        tmp_path,
        "two",
        'extends: one\nfiles: {/b: null, /c: "2"}\ncompatible: [c]\nremove: [/d]\n',
    )
    board = catalogue.load("two", tmp_path)
    assert board.compatible == ("c",)
    assert board.files == {"/a": "1", "/c": "2", "/d/x": "1"}
    assert "/d/x" not in expand(board).files


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("colour: red\n", "colour"),
        ("zones: 3\n", "zones"),
        ("zones: [{type: x, millicelsius: warm}]\n", r"zones\[0\].millicelsius"),
        ("files: [\n", "while parsing"),
        ("extends: nothing\n", "no board 'nothing'"),
        ("extends: bad\n", "too many"),
        ("extends: ../boards/rk3588\n", "cannot be the name of a board"),
        (f"extends: {'r' * 300}\n", "cannot be the name of a board"),
        ('extends: "a\\0b"\n', "cannot be the name of a board"),
        (f"files: {'[' * 5000}{']' * 5000}\n", "recursion"),
        (f"zones: [{{type: a, millicelsius: {'9' * 5000}}}]\n", "4300 digits"),
        ("model: 2020-99-99\n", "month must be in 1..12"),
        ("files: &all {x: *all}\n", "Expected `str`"),
        ('model: "\x7f"\n', "special characters"),
        (f"model: {'x' * (2 << 20)}\n", "more than 2097152 bytes"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, fault: str) -> None:
    """One line says which board and which key."""
    _board(tmp_path, "bad", text)
    with pytest.raises(BoardError, match=fault) as caught:
        catalogue.load("bad", tmp_path)
    assert "\n" not in str(caught.value)


def test_a_board_outside_the_tree_is_refused(tmp_path: Path) -> None:
    """A description cannot write outside the directory it is written to."""
    _board(tmp_path, "bad", 'files: {/sys/../../etc/x: "1"}\n')
    with pytest.raises(BoardError, match="not a path of the board"):
        expand(catalogue.load("bad", tmp_path))
    _board(tmp_path, "bad", 'nodes: {/dev/x: "226"}\n')
    with pytest.raises(BoardError, match="device number"):
        expand(catalogue.load("bad", tmp_path))
    (tmp_path / "other.yaml").write_text(BASE.format(name="another"))
    with pytest.raises(BoardError, match="its name"):
        catalogue.load("other", tmp_path)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('files: {"/a\\0b": x}\n', "not a path of the board"),
        ("files: {a: x}\n", "not a path of the board"),
        ("files: {//a: x}\n", "not a path of the board"),
        ("files: {/a/./b: x}\n", "not a path of the board"),
        ("links: {/: /etc}\n", "not a path of the board"),
        ('links: {"/a": "b\\0"}\n', "leads to"),
        ('links: {"/a": ""}\n', "leads to"),
        ('files: {"/a": "\\ud83d"}\n', "surrogates not allowed"),
        ("devices: {x: {drm: [renderD12345678]}}\n", "not the name of a device node"),
        (f"simulation: {{load: [/../load], heating: {HEATING}}}\n", "not a path of the board"),
    ],
)
def test_a_tree_that_cannot_be_written_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    """Nothing is written of a description whose paths or texts are none."""
    _board(tmp_path, "bad", text)
    with pytest.raises(BoardError, match=fault):
        expand(catalogue.load("bad", tmp_path))


@pytest.mark.parametrize("target", ["/", "../../../..", "{outside}"])
def test_links_of_a_board_lead_nowhere_outside(tmp_path: Path, target: str) -> None:
    """A board from a bug report must not overwrite files of the machine it is looked at on."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("precious")
    link = target.format(outside=outside)
    _board(
        tmp_path,
        "bad",
        f"links: {{/dev: {link!r}, /sys/deep/.load.new: {outside}/victim}}\n"
        f'nodes: {{/dev{outside}/victim: "1:3", /dev/victim: "1:3", /sys/deep/load: "1:3"}}\n',
    )
    tree = expand(catalogue.load("bad", tmp_path))
    with contextlib.suppress(OSError):
        materialise(tree, tmp_path / "tree", device_nodes=False)
    with contextlib.suppress(OSError):
        update(tmp_path / "tree", {"/dev/victim": b"", f"/dev{outside}/victim": b""})
    assert (outside / "victim").read_text() == "precious"
    assert [path.name for path in outside.iterdir()] == ["victim"]


def test_numbers_agree_between_sysfs_and_dev() -> None:
    """A simulated board never refers to a device of the machine it lies on."""
    tree = expand(catalogue.load("rk3588"), SIMULATED_DEVICE)
    numbers = {path: content for path, content in tree.files.items() if path.endswith("/dev")}
    assert len(numbers) == 4
    assert set(numbers.values()) == {b"10:229\n"}
    assert set(tree.nodes.values()) == {SIMULATED_DEVICE}
    real = expand(catalogue.load("rk3588"))
    assert real.nodes["/dev/dri/renderD129"] == (226, 129)


def test_uevents_are_the_kernel_s() -> None:
    """The generated uevent equals the one captured on a board."""
    tree = expand(catalogue.load("rk3588"))
    assert tree.files["/sys/devices/platform/fdab0000.npu/uevent"] == (
        b"DRIVER=RKNPU\nOF_NAME=npu\nOF_FULLNAME=/npu@fdab0000\n"
        b"OF_COMPATIBLE_0=rockchip,rk3588-rknpu\nOF_COMPATIBLE_N=1\n"
        b"MODALIAS=of:NnpuT(null)Crockchip,rk3588-rknpu\n"
    )
    assert tree.files["/sys/devices/platform/fdab0000.npu/drm/renderD129/uevent"] == (
        b"MAJOR=226\nMINOR=129\nDEVNAME=dri/renderD129\nDEVTYPE=drm_minor\n"
    )


def test_every_tree_is_marked_as_simulated(tmp_path: Path) -> None:
    """No reading of a simulated board can be taken for a real one."""
    materialise(expand(catalogue.load("rk3588")), tmp_path, device_nodes=False)
    assert Host(tmp_path).read_text(SIMULATED_MARKER) == "rk3588\n"


def test_writing_twice_replaces_everything(tmp_path: Path) -> None:
    """A second write gives the same tree and leaves no temporary files."""
    tree = expand(catalogue.load("rk3588"))
    for _ in range(2):
        materialise(tree, tmp_path, device_nodes=False)
    found = {
        f"/{path.relative_to(tmp_path)}"
        for path in tmp_path.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }
    assert found == {*tree.files, *tree.links, *tree.nodes}
    assert (tmp_path / "dev/dri/card1").read_bytes() == b""


def test_an_update_is_seen_complete_or_not_at_all(tmp_path: Path) -> None:
    """A reader that holds the old file keeps its content; a new reader sees the new one."""
    path = tmp_path / "sys/load"
    path.parent.mkdir()
    path.write_bytes(b"old")
    with path.open("rb", buffering=0) as reader:
        update(tmp_path, {"/sys/load": b"newer"})
        assert reader.read() == b"old"
    assert path.read_bytes() == b"newer"
    with pytest.raises(FileNotFoundError):
        update(tmp_path, {"/nowhere/load": b""})


def test_device_nodes_are_character_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the capability, nodes are made with the given number, for group access."""
    made: list[tuple[str, int, int]] = []

    def mknod(path: Path, mode: int, device: int) -> None:
        made.append((path.name, mode, device))
        path.touch()

    monkeypatch.setattr(os, "mknod", mknod)
    tree = expand(catalogue.load("rv1106"), SIMULATED_DEVICE)
    materialise(tree, tmp_path, device_nodes=True)
    assert ("rknpu", stat.S_IFCHR | 0o660, os.makedev(10, 229)) in made

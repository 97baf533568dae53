"""A simulated node: which board it plays, and how that board behaves."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from npu import catalogue, thermal
from npu.layout import expand
from npu.scan import driver_of, scan
from npu.tree import materialise
from simulator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.simulator.conftest import MakeNode, Node

PLAIN = Settings(device_nodes=False)
HOT = Settings(device_nodes=False, ambient_celsius=42.0, busy_ratio=1.0, speed=5.0)


def _load(node: Node) -> list[float]:
    npu = scan(node.host).npus[0]
    return [core.ratio for core in driver_of(npu).load(node.host, npu)]


def _celsius(node: Node) -> float:
    zone = thermal.judged_zone(thermal.zones(node.host), "rockchip")
    assert zone is not None
    return thermal.millicelsius(node.host, zone) / 1000


def _control(node: Node, **values: object) -> None:
    (node.directory / "control.json").write_text(json.dumps(values))


ROCKCHIP = [
    name
    for name in catalogue.names()
    if (simulation := catalogue.load(name).simulation) is not None and simulation.chips is None
]


@pytest.mark.parametrize("board", ROCKCHIP)
def test_a_played_board_is_found_and_marked(make_node: MakeNode, board: str) -> None:
    """What the simulator writes is a board to every reader, and says that it is none."""
    node = make_node(board)
    npu, *_ = scan(node.host).npus
    # An estimate needs two readings.
    assert npu.load_is_estimate or len(_load(node)) == npu.cores
    assert node.host.exists("/simulated")
    assert node.player.idle is None
    assert node.player.problems() == []


def test_stable_node_paths_survive_the_indirection(make_node: MakeNode) -> None:
    """The kubelet is given by-path links of the simulated tree too."""
    (npu,) = scan(make_node().host).npus
    assert [node.stable_path for node in npu.nodes] == [
        "/dev/dri/by-path/platform-fdab0000.npu-card",
        "/dev/dri/by-path/platform-fdab0000.npu-render",
    ]


def test_load_follows_what_containers_hold(make_node: MakeNode) -> None:
    """Allocated means busy from the next window on, released means idle."""
    node = make_node()
    assert _load(node) == [0.0, 0.0, 0.0]
    node.hold("npu0")
    node.run(1)
    assert _load(node) == [0.9, 0.9, 0.9]
    node.hold()
    node.run(1)
    assert _load(node) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("held", "busy"),
    [
        (["npu0-s0"], 1),
        (["npu0-s0", "npu0-s3"], 2),
        (["npu0-s0", "npu0-s1", "npu0-s2", "npu0-s3"], 3),
        (["npu0", "npu0-s1"], 3),
        (["npu1"], 0),
        (["gpu0", "nonsense"], 0),
    ],
)
def test_a_slot_keeps_one_core_busy(make_node: MakeNode, held: list[str], busy: int) -> None:
    """Fewer slots mean less load and so less heat; other devices mean nothing."""
    node = make_node()
    node.hold(*held, resource="example.com/any-name")
    node.run(1)
    assert _load(node) == [0.9] * busy + [0.0] * (3 - busy)


def test_heat_follows_load_and_ambient(make_node: MakeNode) -> None:
    """A busy board gets hot on a hot day, caps its clock, and cools when the load is gone."""
    node = make_node(settings=HOT)
    assert _celsius(node) == pytest.approx(48, abs=1)
    node.hold("npu0")
    node.run(180)
    assert _celsius(node) > 79
    (npu,) = scan(node.host).npus
    clocks = set()
    for _ in range(120):
        node.run(1)
        clocks.add(driver_of(npu).clock(node.host, npu).current_hertz)
    assert clocks == {800_000_000, 1_000_000_000}
    node.hold()
    node.run(240)
    assert _celsius(node) < 51
    assert driver_of(npu).clock(node.host, npu).current_hertz == 1_000_000_000


def test_a_lowered_limit_is_the_clock_and_cools(make_node: MakeNode) -> None:
    """What the device plugin writes to ``max_freq`` counts, as it does on a board."""
    node = make_node(settings=HOT)
    node.hold("npu0")
    node.run(180)
    assert _celsius(node) > 79
    limit = node.directory / "sys/class/devfreq/fdab0000.npu/max_freq"
    limit.write_text("700000000\n")
    node.run(240)
    (npu,) = scan(node.host).npus
    assert driver_of(npu).clock(node.host, npu).current_hertz == 700_000_000
    assert _celsius(node) < 76
    limit.write_text("not a clock\n")
    node.run(240)
    assert driver_of(npu).clock(node.host, npu).current_hertz in {800_000_000, 1_000_000_000}
    assert _celsius(node) > 79


def test_speed_heats_faster_and_leaves_windows_alone(make_node: MakeNode, tmp_path: Path) -> None:
    """Six times the speed reaches in a minute what takes six, in sixty windows."""
    fast = make_node(settings=Settings(device_nodes=False, speed=6.0))
    fast.hold("npu0")
    fast.run(60)
    quick, windows = _celsius(fast), fast.player.windows
    shutil.rmtree(fast.directory)
    slow = make_node(settings=PLAIN)
    slow.hold("npu0")
    slow.run(360)
    assert quick == _celsius(slow)
    assert (windows, slow.player.windows) == (61, 361)


def test_power_stays_on_a_little_longer_than_the_load(make_node: MakeNode) -> None:
    """The driver switches off three seconds after the last job."""
    node = make_node()
    (npu,) = scan(node.host).npus
    driver = driver_of(npu)
    assert driver.powered(node.host, npu) is False
    node.hold("npu0")
    node.run(1)
    assert driver.powered(node.host, npu) is True
    node.hold()
    node.run(2)
    assert driver.powered(node.host, npu) is True
    node.run(1)
    assert driver.powered(node.host, npu) is False


def test_busy_seconds_are_the_integral_of_what_was_written(make_node: MakeNode) -> None:
    """A reader that saw every window has measured the same."""
    node = make_node(
        settings=Settings(device_nodes=False, busy_ratio=0.5, busy_jitter_ratio=0.4, seed=7)
    )
    node.hold("npu0-s0", "npu0-s1")
    seen = [0.0, 0.0, 0.0]
    before = dict(node.player.busy_seconds)
    for _ in range(50):
        node.run(1)
        seen = [total + ratio for total, ratio in zip(seen, _load(node), strict=True)]
    counted = [node.player.busy_seconds[core] - before[core] for core in range(3)]
    assert counted == pytest.approx(seen)
    assert 10 < seen[0] < 40
    assert seen[2] == 0


def test_the_same_seed_gives_the_same_load(make_node: MakeNode) -> None:
    """A run can be repeated."""
    runs = []
    for _ in range(2):
        node = make_node(settings=Settings(device_nodes=False, busy_jitter_ratio=0.3, seed=11))
        node.hold("npu0")
        loads = []
        for _ in range(10):
            node.run(1)
            loads.append(_load(node))
        runs.append(loads)
    assert runs[0] == runs[1]
    assert len({tuple(load) for load in runs[0]}) > 1


def test_the_control_file_dictates(make_node: MakeNode) -> None:
    """Load, temperature, ambient, ratio and speed can each be taken over, and given back."""
    node = make_node()
    _control(node, load=[0.9, 0.1], celsius=91.0)
    node.run(1)
    assert _load(node) == [0.9, 0.1, 0.0]
    assert _celsius(node) == pytest.approx(91, abs=0.93)
    (npu,) = scan(node.host).npus
    assert driver_of(npu).clock(node.host, npu).current_hertz == 800_000_000
    _control(node, ambientCelsius=45, busyRatio=0.25, speed=1000)
    node.hold("npu0")
    node.run(5)
    assert _load(node) == [0.25] * 3
    assert _celsius(node) == pytest.approx(45 + 6 + 0.25 * 46, abs=1)
    (node.directory / "control.json").unlink()
    node.run(1)
    assert _load(node) == [0.9] * 3


def test_a_frozen_board_is_left_alone(make_node: MakeNode) -> None:
    """While frozen nothing is written, so a test can put faults into the tree."""
    node = make_node()
    _control(node, frozen=True)
    node.run(1)
    windows = node.player.windows
    load = node.directory / "sys/kernel/debug/rknpu/load"
    load.write_text("garbage")
    node.run(5)
    node.player.look()
    assert load.read_text() == "garbage"
    assert node.player.windows == windows
    (node.directory / "control.json").unlink()
    node.run(1)
    assert _load(node) == [0.0] * 3


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"colour": "red"}',
        b'{"load": [2]}',
        b'{"load": "high"}',
        b'{"speed": 0}',
        b'{"ambientCelsius": 900}',
        b'{"celsius": 1e308}',
        b"\xff\xfe",
    ],
)
def test_a_wrong_control_file_changes_nothing(make_node: MakeNode, content: bytes) -> None:
    """It is counted once, and what was in force stays until it is right or gone."""
    node = make_node()
    _control(node, load=[0.5, 0.5, 0.5])
    node.run(1)
    (node.directory / "control.json").write_bytes(content)
    node.run(3)
    assert _load(node) == [0.5] * 3
    assert node.control.errors == 1
    _control(node, load=[0.25])
    node.run(1)
    assert _load(node) == [0.25, 0.0, 0.0]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_control_file_that_cannot_be_read_is_counted(
    make_node: MakeNode, make: Callable[[Path], None]
) -> None:
    """A directory or FIFO in its place is a mistake, not a reason to stop."""
    node = make_node()
    make(node.directory / "control.json")
    node.run(3)
    assert node.control.errors == 1
    assert node.player.windows == 4


@pytest.mark.parametrize("board", ["rk3588", "rk3588-unbound"])
def test_nothing_is_simulated_where_real_hardware_is(make_node: MakeNode, board: str) -> None:
    """A node with an NPU, working or not, is idle; a tree from before is taken away."""
    node = make_node()
    materialise(expand(catalogue.load(board)), node.real, device_nodes=False)
    node.player.look()
    node.run(3)
    assert node.player.idle == "real_board"
    assert node.player.problems() == []
    assert list(node.directory.iterdir()) == []
    shutil.rmtree(node.real)
    node.player.look()
    assert node.player.idle is None
    assert len(scan(node.host).npus) == 1


def test_a_node_without_board_is_idle(make_node: MakeNode) -> None:
    """None is a choice, and it empties the directory but for the control file."""
    node = make_node()
    _control(node, load=[1.0])
    other = make_node(None)
    assert other.player.idle == "no_board"
    other.run(2)
    assert [path.name for path in other.directory.iterdir()] == ["control.json"]


def test_a_board_without_moving_parts_stands_still(make_node: MakeNode) -> None:
    """Hardware without driver can be simulated too."""
    node = make_node("rk3588-unbound")
    node.run(3)
    assert [item.why for item in scan(node.host).refused] == ["driver_not_bound"]
    assert node.player.problems() == []


def test_files_of_somebody_else_are_not_touched(make_node: MakeNode, tmp_path: Path) -> None:
    """A directory with a real tree is a mistake that must not cost that tree."""
    (tmp_path / "board/sys").mkdir(parents=True)
    (tmp_path / "board/sys/precious").touch()
    node = make_node()
    assert node.player.idle == "cannot_write"
    assert node.player.problems() != []
    node.run(2)
    assert [path.name for path in (tmp_path / "board").rglob("*")] == ["sys", "precious"]
    shutil.rmtree(tmp_path / "board/sys")
    node.player.look()
    assert node.player.problems() == []


def test_a_missing_directory_costs_only_its_files(make_node: MakeNode) -> None:
    """A test that takes the driver's files away keeps them away; the rest goes on."""
    node = make_node()
    shutil.rmtree(node.directory / "sys/kernel/debug/rknpu")
    node.hold("npu0")
    node.run(10)
    assert node.player.write_errors == 20
    (problem,) = node.player.problems()
    assert problem.startswith("2 files of the board cannot be written, such as /sys/kernel/debug/")
    assert not (node.directory / "sys/kernel/debug/rknpu").exists()
    assert _celsius(node) > 45


def test_the_mainline_driver_s_counters_go_on(make_node: MakeNode) -> None:
    """A held NPU shows as time its cores were on; an idle one stands still."""
    node = make_node("rk3588-rocket")
    active = "/sys/devices/platform/fdac0000.npu/power/runtime_active_time"
    start = node.host.read_integer(active)
    node.run(3)
    assert node.host.read_integer(active) == start
    node.hold("npu0", resource="rockchip.com/npu-rocket")
    node.run(10)
    assert node.host.read_integer(active) == start + 9000
    (npu,) = scan(node.host).npus
    assert driver_of(npu).powered(node.host, npu) is True
    node.hold()
    node.run(2)
    assert driver_of(npu).powered(node.host, npu) is False


def test_it_is_ready_again_when_files_can_be_written_again(make_node: MakeNode) -> None:
    """What failed and works again is no problem any more, only a count."""
    node = make_node()
    folder = node.directory / "sys/kernel/debug/rknpu"
    folder.rename(node.directory / "away")
    node.run(1)
    assert node.player.problems()
    (node.directory / "away").rename(folder)
    node.run(1)
    assert node.player.problems() == []
    assert node.player.write_errors == 2

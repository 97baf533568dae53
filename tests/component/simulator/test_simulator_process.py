"""The simulator as a process: start, control, allocations, stop, clean-up."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubelet.paths import pod_resources_socket
from npu import catalogue
from npu.host import Host
from npu.layout import expand
from npu.scan import driver_of, scan
from npu.tree import materialise
from tests.component.fake_kubelet import FakeKubelet, Held

CHECKOUT = Path(__file__).resolve().parents[3]
#: A machine without NPU, whatever runs the tests.
NOWHERE = "/nowhere"


class SimulatorProcess:
    """``python -m simulator`` with its log in a file."""

    def __init__(self, directory: Path, *extra: str, config: str = "{}") -> None:
        self.board = directory / "board"
        self._log_path = directory / "simulator.log"
        configuration = directory / "simulator.yaml"
        configuration.write_text(config)
        self._log = self._log_path.open("wb")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-u", "-X", "faulthandler", "-m", "simulator"),
                f"--board-dir={self.board}",
                f"--real-root={NOWHERE}",
                f"--pod-resources-socket={directory}/no.sock",
                f"--config={configuration}",
                "--bind=127.0.0.1:0",
                *extra,
            ],
            cwd=CHECKOUT,
            stderr=self._log,
            env={k: v for k, v in os.environ.items() if not k.startswith("NPU_SIMULATOR")},
        )

    @property
    def host(self) -> Host:
        """The board as others see it."""
        return Host(self.board)

    def log(self) -> str:
        """Return the log so far."""
        return self._log_path.read_text()

    def wait(self, condition: Callable[[], object], *, seconds: float = 20.0) -> None:
        """Wait until ``condition`` holds; raises AssertionError with the log."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of a GET."""
        self.wait(lambda: '"port"' in self.log())
        port = next(json.loads(x)["port"] for x in self.log().splitlines() if '"port"' in x)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, series: str) -> float | None:
        """Return the value of a series, None where there is none."""
        match = re.search(rf"^{re.escape(series)} (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        return None if match is None else float(match[1])

    def ready(self) -> bool:
        """Tell whether ``/readyz`` says so."""
        return self.get("/readyz")[0] == 200

    def loads(self) -> list[float]:
        """Return the load as the driver's reader sees it."""
        (npu,) = scan(self.host).npus
        return [core.ratio for core in driver_of(npu).load(self.host, npu)]

    def dictate(self, content: str) -> None:
        """Put a control file in place, complete from the first moment."""
        beside = self.board / "control.new"
        beside.write_text(content)
        beside.replace(self.board / "control.json")

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(15)
        self._log.close()
        return code


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory with a path short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="npu-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def simulator(directory: Path) -> Iterator[SimulatorProcess]:
    """A simulator without kubelet."""
    process = SimulatorProcess(directory)
    yield process
    process.stop()


def test_it_plays_without_kubelet_and_stops_on_request(simulator: SimulatorProcess) -> None:
    """A node whose kubelet does not answer has an idle board, and SIGTERM ends it with 0."""
    simulator.wait(simulator.ready)
    simulator.wait(lambda: (simulator.metric("npu_simulator_windows_total") or 0) >= 2)
    assert simulator.get("/healthz")[0] == 200
    assert simulator.loads() == [0.0, 0.0, 0.0]
    assert simulator.metric('npu_simulator_board_info{board="rk3588"}') == 1
    assert (simulator.metric('npu_simulator_allocation_errors_total{reason="no_socket"}') or 0) > 0
    assert simulator.stop() == 0
    assert len(scan(simulator.host).npus) == 1


def test_nodes_are_devices_with_the_number_that_sysfs_says(simulator: SimulatorProcess) -> None:
    """The node is a character device outside every container's default rules."""
    simulator.wait(simulator.ready)
    node = simulator.board / "dev/dri/card1"
    status = node.stat()
    assert stat.S_ISCHR(status.st_mode)
    assert (os.major(status.st_rdev), os.minor(status.st_rdev)) == (10, 229)
    assert stat.S_IMODE(status.st_mode) == 0o660
    assert (simulator.board / "sys/class/drm/card1/dev").read_text() == "10:229\n"
    assert simulator.metric("npu_simulator_device_nodes") == 1


def test_the_control_file_takes_the_board_over(simulator: SimulatorProcess) -> None:
    """A person dictates load and heat; a mistake is counted and changes nothing."""
    simulator.wait(simulator.ready)
    simulator.dictate('{"load": [0.75, 0.5], "celsius": 91.5}')
    simulator.wait(lambda: simulator.metric("npu_simulator_celsius") == 91.5)
    assert simulator.loads() == [0.75, 0.5, 0.0]
    assert simulator.metric("npu_simulator_control_active") == 1
    simulator.dictate('{"colour": 1}')
    simulator.wait(lambda: simulator.metric("npu_simulator_control_errors_total") == 1)
    assert simulator.loads() == [0.75, 0.5, 0.0]
    (simulator.board / "control.json").unlink()
    simulator.wait(lambda: simulator.loads() == [0.0, 0.0, 0.0])


def test_allocations_make_the_board_busy(directory: Path) -> None:
    """What the kubelet says a container holds is what works, and the metrics integrate it."""
    kubelet = FakeKubelet(directory)
    kubelet.start()
    socket = pod_resources_socket(kubelet.pod_resources.parent)
    simulator = SimulatorProcess(
        directory, f"--pod-resources-socket={socket}", config="busyRatio: 0.5"
    )
    try:
        simulator.wait(simulator.ready)
        kubelet.held = (Held("team", "pod", "main", "rockchip.com/npu", ("npu0-s1",)),)
        simulator.wait(lambda: simulator.loads() == [0.5, 0.0, 0.0])
        kubelet.held = (Held("team", "pod", "main", "rockchip.com/npu", ("npu0",)),)
        simulator.wait(lambda: simulator.loads() == [0.5, 0.5, 0.5])
        kubelet.held = ()
        simulator.wait(lambda: simulator.loads() == [0.0, 0.0, 0.0])
        assert (simulator.metric('npu_simulator_busy_seconds_total{core="0"}') or 0) >= 1.0
    finally:
        assert simulator.stop() == 0
        kubelet.stop()


def test_a_restart_keeps_the_board_and_clean_removes_it(directory: Path) -> None:
    """Device nodes are the same inodes after a restart; the clean-up leaves nothing."""
    first = SimulatorProcess(directory)
    first.wait(first.ready)
    inode = (first.board / "dev/dri/card1").stat().st_ino
    assert first.stop() == 0
    second = SimulatorProcess(directory)
    second.wait(second.ready)
    assert (second.board / "dev/dri/card1").stat().st_ino == inode
    assert second.stop() == 0
    clean = SimulatorProcess(directory, "clean")
    assert clean.process.wait(30) == 0
    assert list(clean.board.iterdir()) == []
    clean.stop()


def test_a_real_board_makes_it_idle_and_ready(directory: Path) -> None:
    """On a mixed cluster the daemon waits, says so, and writes nothing."""
    real = directory / "real"
    materialise(expand(catalogue.load("rk3576")), real, device_nodes=False)
    simulator = SimulatorProcess(directory, f"--real-root={real}")
    try:
        simulator.wait(simulator.ready)
        assert simulator.metric('npu_simulator_idle{reason="real_board"}') == 1
        assert simulator.metric("npu_simulator_windows_total") == 0
        assert "a real NPU is on this node" in simulator.log()
        assert not simulator.board.exists()
    finally:
        assert simulator.stop() == 0


def test_a_node_can_have_another_board_or_none(directory: Path) -> None:
    """The name of the node chooses; the same directory follows a change of mind."""
    config = "boards: {default: rk3588, nodes: {w2: rk3576, w3: none}}"
    for node, models in (("w2", ["rk3576"]), ("w3", []), ("w1", ["rk3588"])):
        simulator = SimulatorProcess(directory, f"--node-name={node}", config=config)
        try:
            simulator.wait(simulator.ready)
            assert [npu.model for npu in scan(simulator.host).npus] == models
        finally:
            assert simulator.stop() == 0


@pytest.mark.parametrize(
    ("config", "options", "named"),
    [
        ("speed: -1", [], "speed"),
        ("boards: {default: rk1}", [], "boards.default"),
        ("{}", ["--bind=here"], "here"),
        ("{}", ["--board-dir=relative"], "--board-dir"),
    ],
)
def test_a_bad_configuration_exits_with_2(
    directory: Path, config: str, options: list[str], named: str
) -> None:
    """Before anything is touched, one line names the key."""
    simulator = SimulatorProcess(directory, *options, config=config)
    assert simulator.process.wait(30) == 2
    assert named in simulator.log().splitlines()[-1]
    assert not simulator.board.exists()
    simulator.stop()


def test_check_only_checks(directory: Path) -> None:
    """A chart test can validate a configuration without a board."""
    simulator = SimulatorProcess(directory, "--check", config="speed: 6")
    assert simulator.process.wait(30) == 0
    assert not simulator.board.exists()
    simulator.stop()

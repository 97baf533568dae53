"""Telemetry of Ascend chips: from a child process, bounded, and absent rather than old."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.app import Exporter
from exporter.catalogue import Sample
from exporter.main import main
from exporter.npu_smi import NpuSmi
from exporter.settings import Settings
from exporter.telemetry import FRESH_SECONDS, TelemetryError
from npu import catalogue
from npu.catalogue import Chips
from npu.host import Host
from npu.layout import expand
from npu.smi_table import ChipState, render
from npu.tree import materialise
from tests.unit.exporter.fakes import FakeLister, held

CHIPS = Chips(
    name="910B4",
    version="25.5.1",
    memory_megabytes=0,
    hbm_megabytes=32768,
    idle_watts=86,
    busy_watts=280,
)


def values(samples: list[Sample], name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Return the values of a metric by ``labels``, by all of them where none is named."""
    found = {}
    for sample in samples:
        if sample.metric.name == name:
            pairs = dict(sample.labels)
            found[tuple(pairs[label] for label in labels or pairs)] = sample.value
    return found


class FakeProgram:
    """An npu-smi that says what a test wants."""

    def __init__(self) -> None:
        self.percents = [0] * 8
        self.celsius = 50.0
        self.error: TelemetryError | None = None
        self.runs = 0

    def __call__(self) -> str:
        """Print eight chips, or fail."""
        self.runs += 1
        if self.error is not None:
            raise self.error
        states = [ChipState(celsius=self.celsius, percent=p) for p in self.percents]
        return render(CHIPS, states).decode()


class Node:
    """An exporter on a board, with a clock that a test turns."""

    def __init__(self, directory: Path, board: str, program: FakeProgram | None) -> None:
        materialise(expand(catalogue.load(board)), directory, device_nodes=False)
        self.now = 100.0
        self.exporter = Exporter(
            Host(directory),
            FakeLister(held("train-0", "davinci1", resource="huawei.com/Ascend910")),
            Settings(),
            npu_smi=program,
            monotonic=lambda: self.now,
        )

    def scrape(self, seconds: float = 1.0) -> list[Sample]:
        """Let seconds pass, each loop once, and scrape."""
        self.now += seconds
        for loop in self.exporter.loops:
            loop.step()
        return self.exporter.scrape()


@pytest.fixture
def program() -> FakeProgram:
    return FakeProgram()


@pytest.fixture
def node(tmp_path: Path, program: FakeProgram) -> Node:
    return Node(tmp_path, "ascend910b", program)


def test_chip_is_measured_like_any_npu(node: Node, program: FakeProgram) -> None:
    """Load is the same two counters, heat the same temperature, holders the same info."""
    program.percents[1] = 80
    node.scrape()
    samples = node.scrape()

    busy = values(samples, "npu_core_busy_seconds_total", "device")
    sampled = values(samples, "npu_core_sampled_seconds_total", "device")
    assert busy["davinci1",] == pytest.approx(0.8)
    assert (busy["davinci0",], sampled["davinci0",]) == (0, 1)
    assert values(samples, "npu_temperature_celsius", "device", "zone")["davinci1", "chip"] == 50
    assert values(samples, "npu_up", "device")["davinci1",] == 1
    assert values(samples, "npu_power_watts", "device")["davinci1",] == pytest.approx(241.2)
    assert values(samples, "npu_memory_size_bytes", "device", "memory")["davinci1", "hbm"] == (
        32768 << 20
    )
    assert values(samples, "npu_vendor_health", "device", "state")["davinci1", "ok"] == 1
    assert set(values(samples, "npu_scrape_collector_success").values()) == {1}
    assert node.exporter.problems() == []


def test_answer_counts_for_a_while_and_then_everything_is_absent(
    node: Node, program: FakeProgram
) -> None:
    """One slow answer leaves no gap; a tool that stays away leaves nothing that looks current."""
    node.scrape()
    program.error = TelemetryError("npu-smi info did not end within 8 s")
    samples = node.scrape(FRESH_SECONDS - 2)
    assert values(samples, "npu_temperature_celsius", "device")["davinci0",] == 50

    samples = node.scrape(3)
    for name in ("npu_temperature_celsius", "npu_power_watts", "npu_memory_used_bytes"):
        assert values(samples, name) == {}
    success = values(samples, "npu_scrape_collector_success", "collector")
    assert (success["telemetry",], success["load",]) == (0, 0)
    assert values(samples, "npu_up", "device")["davinci0",] == 0
    assert any("did not end" in problem for problem in node.exporter.problems())
    assert len(values(samples, "npu_telemetry_last_success_timestamp_seconds")) == 1


def test_chip_without_a_row_is_a_failure_and_others_are_told(
    node: Node, program: FakeProgram
) -> None:
    """A chip that the tool does not see is not silently cool."""
    program.percents = program.percents[:7]
    samples = node.scrape()
    assert len(values(samples, "npu_temperature_celsius", "device")) == 7
    assert values(samples, "npu_scrape_collector_success", "collector")["telemetry",] == 0


def test_sentinel_is_absent(node: Node, program: FakeProgram) -> None:
    """The driver's -275 is no temperature, and the rest of the row counts."""
    program.celsius = -275
    samples = node.scrape()
    assert values(samples, "npu_temperature_celsius") == {}
    assert len(values(samples, "npu_power_watts")) == 8


def test_program_runs_only_where_there_is_an_ascend_chip(
    tmp_path: Path, program: FakeProgram
) -> None:
    """A Rockchip board starts no child process and has nothing missing."""
    node = Node(tmp_path, "rk3588", program)
    samples = node.scrape()
    assert program.runs == 0
    assert set(values(samples, "npu_scrape_collector_success").values()) == {1}


def test_without_telemetry_chips_are_known_and_nothing_is_missing(tmp_path: Path) -> None:
    """It is an option: identity and holders need no tool."""
    samples = Node(tmp_path, "ascend910b", None).scrape()
    assert len(values(samples, "npu_info")) == 8
    assert values(samples, "npu_temperature_celsius") == {}
    assert set(values(samples, "npu_scrape_collector_success").values()) == {1}


Script = Callable[[str], str]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Writes a program and gives the command that runs it."""

    def write(text: str) -> str:
        path = tmp_path / "npu-smi"
        path.write_text(text)
        return f"{sys.executable} -I {path}"

    return write


def test_child_prints(script: Script) -> None:
    """What it prints is what is read; it is asked for ``info``."""
    assert NpuSmi(script("import sys; print(sys.argv[1])"), "/")() == "info\n"


def test_child_that_hangs_is_killed(script: Script) -> None:
    """With everything it started, and within its time."""
    program = NpuSmi(script("import time; time.sleep(600)"), "/", timeout_seconds=0.3)
    with pytest.raises(TelemetryError, match=r"did not end within 0\.3 s"):
        program()
    assert program._stuck is None


def test_child_that_closes_its_output_and_stays_is_killed(script: Script) -> None:
    """The end of the output is not the end of the child."""
    text = "import os, time; os.close(1); os.close(2); time.sleep(600)"
    with pytest.raises(TelemetryError, match="did not end"):
        NpuSmi(script(text), "/", timeout_seconds=0.5)()


def test_child_that_fails_says_why(script: Script) -> None:
    """The last line is the reason, for example that the driver is not there."""
    command = script("print('dcmi module initialize failed. ret is -8005'); raise SystemExit(3)")
    with pytest.raises(TelemetryError, match="-8005"):
        NpuSmi(command, "/")()


def test_child_that_says_too_much_is_stopped(script: Script) -> None:
    """Memory is bounded."""
    with pytest.raises(TelemetryError, match="more than"):
        NpuSmi(script("while True: print('x' * 65536)"), "/")()


def test_absent_program_names_where_it_was_looked_for(tmp_path: Path) -> None:
    """Three places are known; a command that is wrong is named."""
    with pytest.raises(TelemetryError, match=r"/usr/local/sbin/npu-smi"):
        NpuSmi("auto", str(tmp_path))()
    with pytest.raises(TelemetryError, match="/nowhere/npu-smi"):
        NpuSmi("/nowhere/npu-smi", "/")()


def test_program_of_the_board_finds_its_libraries_below_the_root(tmp_path: Path) -> None:
    """The board's files are mounted elsewhere than on the board."""
    path = tmp_path / "usr/local/sbin/npu-smi"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!{sys.executable} -I\nimport os\nprint(os.environ['LD_LIBRARY_PATH'])\n")
    path.chmod(0o755)
    assert f"{tmp_path}/usr/local/dcmi" in NpuSmi("auto", f"{tmp_path}/")()


def test_command_line_runs_the_program_of_a_simulated_board(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """As the chart calls it: a command below the root, which is a path."""
    materialise(expand(catalogue.load("ascend310p")), tmp_path, device_nodes=False)
    command = f"{sys.executable} -I {tmp_path}/usr/local/bin/npu-smi"
    arguments = [f"--root={tmp_path}", "--pod-resources-socket=", f"--npu-smi={command}", "--once"]
    assert main(arguments) == 0
    printed = capfdbinary.readouterr().out
    assert b'npu_temperature_celsius{device="davinci1",zone="chip"} 40.0' in printed

"""The exporter over every board of the catalogue: golden text, size, and what it opens."""

import difflib
import os
import re
import sys
from pathlib import Path

import pytest

from exporter.app import Exporter
from exporter.catalogue import Sample
from exporter.exposition import render
from exporter.npu_smi import NpuSmi
from exporter.settings import Settings
from npu import catalogue
from npu.host import Host, read_bounded
from npu.layout import expand
from npu.tree import materialise
from tests.bench.boards import several
from tests.unit.exporter.fakes import FakeLister, held, values

GOLDEN = Path(__file__).parent / "golden"
#: Set to 1 to write what is exported now; the difference then shows in the commit.
SWITCH = "UPDATE_GOLDEN"
_VOLATILE = re.compile(
    r"^(npu_scrape_collector_duration_seconds|npu_last_sample_timestamp_seconds"
    r"|npu_telemetry_last_success_timestamp_seconds"
    r"|npu_exporter_build_info|process_\w+)(\{.*\})? .*$",
    re.MULTILINE,
)


def exporter_of(name: str, directory: Path) -> Exporter:
    materialise(expand(catalogue.load(name)), directory, device_nodes=False)
    program = directory / "usr/local/bin/npu-smi"
    command = f"{sys.executable} -I {program}"
    return Exporter(
        Host(directory),
        FakeLister(held("detector-0", "npu0")),
        Settings(),
        npu_smi=NpuSmi(command, "/") if program.exists() else None,
    )


def scrape(exporter: Exporter) -> list[Sample]:
    for loop in exporter.loops:
        loop.step()
    return exporter.scrape()


@pytest.mark.parametrize(
    "name", ["rk3588", "rk3568", "rk3588-unbound", "ascend310p", "rk3588-ascend"]
)
def test_exposition_is_golden(name: str, tmp_path: Path) -> None:
    """Names, labels and help texts are a contract: a change is seen in review.

    The values of every board are among the goldens of boards.
    """
    body, _ = render(scrape(exporter_of(name, tmp_path)))
    text = _VOLATILE.sub(r"\1\2 #", body.decode())
    text = re.sub(r"npu_exporter_build_info\{.*\}", "npu_exporter_build_info{…}", text)
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get(SWITCH) == "1":
        golden.write_text(text)
    difference = "\n".join(
        difflib.unified_diff(golden.read_text().splitlines(), text.splitlines(), "golden", "now")
    )
    assert not difference, f"if this is meant, run with {SWITCH}=1\n{difference}"


@pytest.mark.parametrize("name", catalogue.names())
def test_a_board_has_less_than_100_series(name: str, tmp_path: Path) -> None:
    """Five thousand boards stay affordable, and every collector succeeds on a sound board.

    A server has up to eight chips: the number is per device there.
    """
    exporter = exporter_of(name, tmp_path)
    samples = scrape(exporter)
    assert len({(sample.metric.name, sample.labels) for sample in samples}) == len(samples)
    board = exporter.board.current
    assert board is not None
    assert len(samples) < 100 + 20 * max(0, len(board.inventory.npus) - 1)
    assert set(values(samples, "npu_scrape_collector_success").values()) == {1}


#: What may be read of the vendor driver; the others wake the NPU, or crash kernels.
_HARMLESS = {"load", "power", "version"}


class _Opened:
    """Paths opened by this process while it is switched on; audit hooks cannot be removed."""

    def __init__(self) -> None:
        self.on = False
        self.calls: list[tuple[str, int]] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.on and event == "open":
            path, _, flags = arguments
            self.calls.append((str(path), flags if isinstance(flags, int) else 0))


@pytest.mark.parametrize("name", catalogue.names())
def test_observation_never_touches_the_npu(name: str, tmp_path: Path) -> None:
    """No file that wakes or may crash the NPU is opened, no device node, and nothing to write."""
    read: list[str] = []

    def reader(path: str, limit: int) -> bytes:
        read.append(path)
        return read_bounded(path, limit)

    materialise(expand(catalogue.load(name)), tmp_path, device_nodes=False)
    exporter = Exporter(Host(tmp_path, reader=reader), None, Settings())
    opened = _Opened()
    opened.on = True
    try:
        for _ in range(2):
            scrape(exporter)
    finally:
        opened.on = False
    below = [(path, flags) for path, flags in opened.calls if path.startswith(str(tmp_path))]
    assert read
    assert below
    for path, flags in below:
        inside = path.removeprefix(str(tmp_path))
        assert not inside.startswith("/dev/")
        folder, _, file = inside.rpartition("/")
        if folder.endswith("/rknpu"):
            assert file in _HARMLESS, inside
        assert flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) == 0


def test_worst_case_of_a_node_is_bounded(tmp_path: Path) -> None:
    """An NPU shared by thirty Pods: two series per Pod; at most twenty per further NPU."""
    sharers = [held(f"detector-{n}", f"npu0-s{n}") for n in range(30)]
    alone = len(scrape(exporter_of("rk3588", tmp_path / "one")))
    many = len(scrape(Exporter(Host(tmp_path / "one"), FakeLister(*sharers), Settings())))
    materialise(several(3), tmp_path / "three", device_nodes=False)
    three = len(scrape(Exporter(Host(tmp_path / "three"), FakeLister(sharers[0]), Settings())))

    assert alone < 100
    assert three - alone <= 2 * 20
    assert many - alone == 2 * 29
    assert many < 200


def test_driver_that_comes_late_is_found(tmp_path: Path) -> None:
    """A module loaded after the exporter started needs no restart."""
    exporter = exporter_of("rk3588-unbound", tmp_path)
    assert values(scrape(exporter), "npu_info") == {}
    materialise(expand(catalogue.load("rk3588")), tmp_path, device_nodes=False)
    assert len(values(scrape(exporter), "npu_info")) == 1


def test_board_without_npu_is_ready(tmp_path: Path) -> None:
    """An empty machine is idle by design: ready, successful, no npu_up."""
    exporter = Exporter(Host(tmp_path), FakeLister(), Settings())
    samples = scrape(exporter)
    assert exporter.problems() == []
    assert values(samples, "npu_up") == {}
    assert set(values(samples, "npu_scrape_collector_success").values()) == {1}

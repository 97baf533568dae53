"""The board page in a real browser: readable on a phone, accessible, refreshing, honest."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ci.browser import Browser, Page
from npu import catalogue
from npu.layout import expand
from npu.tree import materialise, update
from tests.component.exporter.exporter_process import ExporterProcess
from tests.component.fake_kubelet import FakeKubelet, Held

LOAD = "/sys/kernel/debug/rknpu/load"
POD = "detector-with-a-long-name-" + "x" * 200
#: Set to a folder to keep what the browser shows.
PICTURES = "NPU_TEST_PICTURES"

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """A browser."""
    with Browser() as opened:
        yield opened


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """A busy RK3588 whose NPU is hot."""
    directory = tmp_path / "board"
    materialise(expand(catalogue.load("rk3588")), directory, device_nodes=False)
    update(directory, {LOAD: b"NPU load:  Core0: 61%, Core1: 61%, Core2: 61%,\n"})
    update(directory, {"/sys/class/thermal/thermal_zone6/temp": b"97000\n"})
    return directory


@pytest.fixture
def exporter(tmp_path: Path, board: Path) -> Iterator[ExporterProcess]:
    """An exporter beside a kubelet; holders have long names."""
    kubelet = FakeKubelet(tmp_path)
    kubelet.held = (Held("team-a", POD, "main", "rockchip.com/npu", ("npu0",)),)
    kubelet.start()
    process = ExporterProcess(tmp_path, board, kubelet.pod_resources / "kubelet.sock")
    yield process
    process.end()
    kubelet.stop()


def shown(page: Page, what: Callable[[str], bool]) -> None:
    """Wait until the text of the page is as ``what`` wants it."""
    deadline = time.monotonic() + 60
    while not what(text := str(page.value("document.body.innerText"))):
        assert time.monotonic() < deadline, text
        time.sleep(0.2)


def test_page_in_a_browser(page: Page, exporter: ExporterProcess, board: Path) -> None:
    """No overflow from phone to desk, no complaint of axe, facts that follow the board."""
    exporter.wait(lambda: b"<svg" in exporter.get("/")[1], seconds=60)
    url = f"http://127.0.0.1:{exporter.port()}/"
    for width, dark in ((360, False), (360, True), (768, False), (1440, False), (1440, True)):
        page.open(url, width=width, dark=dark)
        assert not page.overflows(), width
        assert page.complaints() == []
        if folder := os.environ.get(PICTURES):
            Path(folder, f"board-{width}{'-dark' * dark}.png").write_bytes(page.picture())
    shown(page, lambda text: "61 %" in text and POD in text and "(close)" in text)

    update(board, {LOAD: b"NPU load:  Core0: 17%, Core1:  0%, Core2:  0%,\n"})
    shown(page, lambda text: "17 %" in text)
    assert page.value("performance.getEntriesByType('navigation').length") == 1

    exporter.end()
    shown(page, lambda text: "does not answer" in text)
    assert page.complaints() == []


def test_page_of_an_empty_board(page: Page, tmp_path: Path) -> None:
    """A machine without an NPU has a page too, as accessible as the others."""
    (tmp_path / "empty").mkdir()
    process = ExporterProcess(tmp_path, tmp_path / "empty", "")
    try:
        page.open(f"http://127.0.0.1:{process.port()}/", width=360)
        shown(page, lambda text: "No NPU" in text)
        assert not page.overflows()
        assert page.complaints() == []
    finally:
        process.end()

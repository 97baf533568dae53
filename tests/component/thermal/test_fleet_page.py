"""The fleet page of 5,000 nodes in a real browser: found, sorted, filtered, readable on a phone."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ci.browser import Browser, Page
from daemon.http import HttpServer
from npu.heat import Heat
from npu.thresholds import Settings
from tests.unit.thermal.fleet_facts import decision
from thermal.budget import softened
from thermal.fleet import NodeStatus
from thermal.groups import CLUSTER, Group
from thermal.judging import Judgement
from thermal.pages import fleet_page
from thermal.readings import DeviceSample
from thermal.restraint import Restrained

NODES = 5000
#: Every so many nodes one of each of these, and one that is only avoided.
STATES = {7: Heat.WARM, 97: Heat.HOT, 499: Heat.CRITICAL, 1999: Heat.UNKNOWN}
VERDICT = "1 published device selected. 1 pod would be evicted in 1 namespace if NoExecute."
#: Set to a folder to keep what the browser shows.
PICTURES = "NPU_TEST_PICTURES"
#: A page takes some tens of milliseconds here; a reader does not wait for this long.
SECONDS = 3.0

pytestmark = pytest.mark.timeout(400)


def _status(number: int) -> NodeStatus:
    name = f"board-{number:04}.edge.example.com"
    heat = next((s for each, s in reversed(STATES.items()) if number % each == each - 1), Heat.COOL)
    made = (
        decision(name, Heat.HOT, celsius=80.0 + number % 7)
        if heat is Heat.UNKNOWN
        else decision(name, heat)
    )
    return NodeStatus(
        node=name,
        decision=softened(made) if heat is Heat.CRITICAL else made,
        devices=(DeviceSample(device="npu0", vendor="rockchip", model="rk3588"),),
        limits=Settings().resolve(),
        since="2026-01-01T14:03:00Z",
        sample_age_seconds=2.0,
        problem="timeout" if heat is Heat.UNKNOWN else None,
    )


@pytest.fixture(scope="module")
def judgement() -> Judgement:
    """A fleet in a storm, a board without a driver among them."""
    statuses = {status.node: status for status in map(_status, range(NODES))}
    hot = {name for name, status in statuses.items() if status.decision and status.decision.stop}
    resource = Group("resource", "rockchip.com/npu")
    return Judgement(
        term=1,
        statuses=statuses,
        applied=dict.fromkeys(hot, "NoSchedule"),
        undriven={"board-9999.edge.example.com": ("driver_not_bound",)},
        restrained=Restrained(
            limits={resource: NODES // 5}, used={resource: len(hot)}, storms=frozenset({CLUSTER})
        ),
        remarks={min(hot): (VERDICT,)},
    )


@contextmanager
def served(judged: Callable[[], Judgement | None]) -> Iterator[str]:
    """Serve the page of whatever is judged; gives its address."""
    page = fleet_page(judged, lambda: "guard-0", mode="enforce")
    server = HttpServer("127.0.0.1:0", {"/": page})
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}/"
    finally:
        server.stop()


@pytest.fixture(scope="module")
def url(judgement: Judgement) -> Iterator[str]:
    """The page of the fleet."""
    with served(lambda: judgement) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    """A browser."""
    with Browser() as opened:
        yield opened


def _cells(page: Page, column: int) -> list[str]:
    cells = f"[...document.querySelectorAll('tbody td:nth-child({column})')]"
    found = page.value(f"{cells}.map(cell => cell.innerText)")
    assert isinstance(found, list)
    return found


def _follow(page: Page, link: str) -> None:
    """Click a link of the page by the beginning of its text, and wait for the next page."""
    page.value("window.old = true")
    links = "[...document.querySelectorAll('a')]"
    page.value(f"{links}.find(one => one.innerText.startsWith('{link}')).click()")
    _arrive(page)


def _arrive(page: Page) -> None:
    deadline = time.monotonic() + 60
    while page.value("window.old === undefined && document.readyState === 'complete'") is not True:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_fleet_of_five_thousand_in_a_browser(browser: Page, url: str) -> None:
    """No overflow from phone to desk, no complaint of axe, quick, nothing from elsewhere."""
    for width, dark in ((360, False), (360, True), (768, False), (1440, False), (1440, True)):
        began = time.monotonic()
        browser.open(url, width=width, dark=dark)
        assert time.monotonic() - began < SECONDS
        assert not browser.overflows(), width
        assert browser.complaints() == []
        if folder := os.environ.get(PICTURES):
            Path(folder, f"fleet-{width}{'-dark' * dark}.png").write_bytes(browser.picture())
    assert browser.value("performance.getEntriesByType('resource').length") == 0
    text = str(browser.value("document.body.innerText"))
    assert "Storm in cluster" in text
    assert f"{NODES + 1} of {NODES + 1} nodes, page 1 of 51" in text


def test_a_node_is_found_by_clicks(browser: Page, url: str) -> None:
    """Filter, sorting, pages and search, each by what is on the page."""
    browser.open(url, width=1440)
    assert len(_cells(browser, 1)) == 100
    assert set(_cells(browser, 2)[:3]) == {"critical"}, "the worst come first"
    _follow(browser, "Next")
    assert "page 2 of 51" in str(browser.value("document.body.innerText"))

    _follow(browser, "hot ")
    assert set(_cells(browser, 2)) == {"hot"}
    assert any(VERDICT in note for note in _cells(browser, 8))
    _follow(browser, "Hottest device")
    celsius = [float(text.split()[0]) for text in _cells(browser, 3)]
    assert celsius == sorted(celsius, reverse=True)
    _follow(browser, "Node")
    assert _cells(browser, 1) == sorted(_cells(browser, 1))

    _follow(browser, "all ")
    browser.value("window.old = true; document.querySelector('[type=search]').value = 'board-9999'")
    browser.value("document.querySelector('form button').click()")
    _arrive(browser)
    assert _cells(browser, 1) == ["board-9999.edge.example.com"]
    assert _cells(browser, 2) == ["no driver"]
    assert _cells(browser, 8) == ["driver_not_bound"]


def test_page_follows_the_fleet_and_leaves_who_types_alone(
    browser: Page, judgement: Judgement
) -> None:
    """Without a new load; a guard that is gone or waits is told, and a search in progress stays."""
    shown: list[Judgement | None] = [judgement]
    with served(lambda: shown[0]) as address:
        browser.open(address, width=1440)
        browser.value("window.old = true")
        browser.value("document.querySelector('[type=search]').focus()")
        shown[0] = Judgement(term=1, statuses={})
        browser.value("refresh()")
        assert len(_cells(browser, 1)) == 100
        browser.value("document.activeElement.blur()")
        browser.value("refresh()")
        assert _cells(browser, 1) == ["No node with an NPU is known."]
        shown[0] = None
        browser.value("refresh()")
        assert "guard-0 leads" in str(browser.value("document.body.innerText"))
        shown.clear()
        browser.value("refresh()")
        assert "does not answer" in str(browser.value("document.body.innerText"))
    assert browser.value("window.old") is True
    assert browser.complaints() == []

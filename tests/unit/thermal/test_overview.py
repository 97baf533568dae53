"""The fleet page: filter, sorting and pages, and what it shows of a node."""

import base64
import hashlib
import html
import json
import re

from daemon.http import Request, Response
from npu.heat import Heat
from npu.thresholds import Settings
from tests.unit.thermal.fleet_facts import decision
from thermal.budget import softened
from thermal.fleet import NodeStatus
from thermal.groups import CLUSTER, Group
from thermal.journal import Journal
from thermal.judging import Judgement
from thermal.overview import NO_DRIVER, Overview, overview
from thermal.pages import decisions_page, fleet_page
from thermal.policy import Decision
from thermal.readings import DeviceSample
from thermal.restraint import Restrained

LIMITS = Settings().resolve()
SAMPLE = DeviceSample(device="npu0", vendor="rockchip", model="rk3588")


def status(made: Decision | None, node: str, problem: str | None = None) -> NodeStatus:
    return NodeStatus(
        node=node,
        decision=made,
        devices=(SAMPLE,),
        limits=LIMITS,
        since="2026-01-01T14:03:00Z",
        sample_age_seconds=2.0,
        problem=problem,
    )


def judgement(count: int = 0) -> Judgement:
    statuses = {
        "hot": status(decision("hot", Heat.HOT), "hot"),
        "over": status(softened(decision("over", Heat.CRITICAL)), "over"),
        "cool": status(decision("cool", Heat.COOL), "cool"),
        "new": status(None, "new", problem="timeout"),
    }
    many = {f"n{i:04}": status(decision(f"n{i:04}", Heat.COOL), f"n{i:04}") for i in range(count)}
    resource = Group("resource", "rockchip.com/npu")
    return Judgement(
        term=1,
        statuses=statuses | many,
        applied={"hot": "NoSchedule", "over": "PreferNoSchedule"},
        undriven={"bare": ("driver_not_bound",), "hot": ("other",)},
        restrained=Restrained(
            limits={resource: 1}, used={resource: 1}, storms=frozenset({CLUSTER})
        ),
    )


def page(count: int = 0, **query: str) -> Overview:
    return overview(judgement(count), {name: [value] for name, value in query.items()})


def names(shown: Overview) -> list[str]:
    return [row.node for row in shown.rows]


def test_the_worst_nodes_come_first() -> None:
    """Without a choice, a person sees what needs him."""
    shown = page()

    assert names(shown) == ["over", "hot", "cool", "new", "bare"]
    assert [row.kept for row in shown.rows] == ["avoided", "closed", "", "", ""]
    assert shown.rows[0].notes == ("Critical", "held back: budget")
    assert shown.rows[3].notes == ("timeout",)
    assert (shown.rows[4].state, shown.rows[4].notes) == (NO_DRIVER, ("driver_not_bound",))
    assert shown.storms == ("cluster",)
    assert shown.budgets == ("rockchip.com/npu: 1 of 1",)


def test_any_column_sorts_both_ways() -> None:
    """The heading of the sorted column turns the order, the others sort by theirs."""
    shown = page(sort="node")
    assert names(shown) == sorted(names(shown))
    heading = {column.key: column for column in shown.columns}
    assert heading["node"].direction == "ascending"
    assert heading["node"].address == "?sort=node&order=desc"
    assert heading["celsius"].address == "?sort=celsius"
    for column in heading:
        for order in ("asc", "desc"):
            assert len(page(sort=column, order=order).rows) == 5


def test_filters_narrow() -> None:
    """By part of the name and by state; the counts by state are of all nodes."""
    assert names(page(search="O", state="cool")) == ["cool"]
    shown = page(state=NO_DRIVER)
    assert names(shown) == ["bare"]
    assert {choice.title: choice.count for choice in shown.states}["hot"] == 1
    assert page(search="nothing").matching == 0


def test_pages_of_five_thousand_nodes() -> None:
    """A page holds a hundred; addresses keep the other choices."""
    shown = page(5000, search="n", sort="node", page="3")

    assert (len(shown.rows), shown.pages, shown.matching) == (100, 51, 5001)
    assert shown.rows[0].node == "n0200"
    assert shown.before == "?search=n&sort=node&page=2"
    assert shown.after == "?search=n&sort=node&page=4"
    assert page(5000, page="999999").page == 51


def test_nonsense_in_the_address_is_the_default() -> None:
    """Nothing a visitor writes fails."""
    for query in ({"page": "-1"}, {"page": "0"}, {"size": "9e9"}, {"sort": "'"}, {"state": "<b>"}):
        written = {name: [value] for name, value in query.items()}
        assert names(overview(judgement(), written)) == names(page())


def answer_of(current: Judgement | None, **query: str) -> Response:
    handler = fleet_page(lambda: current, lambda: "guard-b", mode="enforce")
    parts = {name: [value] for name, value in query.items()}
    return handler(Request(path="/", query=parts, headers={}))


def test_the_page_is_rendered_and_escaped() -> None:
    """No script but its own, no other addresses; what a visitor searched for is text."""
    evil = '"><script>alert(1)</script>'
    answer = answer_of(judgement(), search=evil)
    text = answer.body.decode()

    assert answer.status == 200
    assert text.count("<script") == 1
    assert "<script>alert" not in text
    assert html.escape(evil, quote=True).replace("&#x27;", "&#39;") in text.replace(
        "&#34;", "&quot;"
    )
    assert not re.search(r"https?://|src=|@import|url[(]", text)
    policy = answer.headers["Content-Security-Policy"]
    own = text.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}';" in policy
    assert "NPU nodes" in text


def test_a_standby_names_the_leader() -> None:
    """It has no nodes to show."""
    answer = answer_of(None)

    assert answer.status == 503
    assert "guard-b leads" in answer.body.decode()


def test_decisions_are_answered_newest_first() -> None:
    """Of one node or of all, and never more than asked for."""
    times = iter(f"t{number}" for number in range(10))
    journal = Journal(limit=3, wall=lambda: next(times))
    for node in ("a", "b", "a", "b"):
        journal.note("state", node, "npu0: warm -> hot", reason="temperature")

    def asked(**query: str) -> dict[str, object]:
        parts = {name: [value] for name, value in query.items()}
        handler = decisions_page(journal, judgement, lambda: None)
        body = handler(Request(path="/", query=parts, headers={})).body
        return dict(json.loads(body))

    assert [(e.at, e.node) for e in journal.entries()] == [("t3", "b"), ("t2", "a"), ("t1", "b")]
    assert asked(node="a")["decisions"] == [
        {
            "at": "t2",
            "kind": "state",
            "node": "a",
            "reason": "temperature",
            "text": "npu0: warm -> hot",
        }
    ]
    assert len(asked(limit="1")["decisions"]) == 1  # type: ignore[arg-type]
    assert len(asked(limit="many")["decisions"]) == 3  # type: ignore[arg-type]
    standby = decisions_page(journal, lambda: None, lambda: "guard-b")
    assert standby(Request(path="/", query={}, headers={})).status == 503

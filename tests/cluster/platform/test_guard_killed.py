"""Guards killed at each step of their writes: every successor goes on as if nothing had been."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from ci.kube import until
from npu.heat import Heat
from tests.cluster.platform.installed import COOL, HOT, Platform
from tests.cluster.platform.killing import Killer, condition, other_taints, own_taints
from thermal import record
from thermal.kube import Client
from thermal.names import ANNOTATION_STATE
from thermal.record import Record

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1500)]

FOREIGN: Final = ("example.com/maintenance=yes:PreferNoSchedule", "example.com/rack:NoSchedule")
NODES: Final = "/api/v1/nodes"


def _record(platform: Platform, node: str) -> Record:
    found = record.decode(platform.kube.node(node)["metadata"]["annotations"][ANNOTATION_STATE])
    assert found is not None
    return found


def _reason(platform: Platform, node: str) -> tuple[str | None, str | None]:
    found = condition(platform.kube.node(node))
    return found.get("status"), found.get("reason")


@contextmanager
def _seen(platform: Platform, node: str) -> Iterator[list[tuple[int, str]]]:
    """Collect how many own and which other taints a Node has, at each change of it."""
    client = Client.from_kubeconfig(platform.cluster.kubeconfig)
    version = client.list(NODES).resource_version
    watch = client.watch(NODES, version, seconds=1500)
    seen: list[tuple[int, str]] = []

    def collect() -> None:
        for event in watch.events():
            item = event["object"]
            if event["type"] == "MODIFIED" and item["metadata"]["name"] == node:
                seen.append((len(own_taints(item)), other_taints(item)))

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        watch.stop()
        thread.join()


def test_guards_killed_at_each_step_of_a_heat_and_its_end(
    cool: Platform, tmp_path: Path, measure: Callable[[str], None]
) -> None:
    """Before a write is stored and after: one taint, one heat in the record, the others' as is."""
    node = cool.boards[0]
    until(
        lambda: _reason(cool, node),
        lambda seen: seen == ("False", "TemperatureNormal"),
        seconds=90,
        what=f"{node} calm",
    )
    entries = _record(cool, node).hot_entries.get("npu0", 0)
    for taint in FOREIGN:
        cool.kube.kubectl("taint", "node", node, taint)
    try:
        others = other_taints(cool.kube.node(node))
        killer = Killer(platform=cool, node=node)
        with _seen(cool, node) as seen, killer.waiting(tmp_path):
            cool.hold(node, HOT)
            until(
                lambda: killer.killed_at("Event NPUHot"), seconds=500, what="the last of the heat"
            )
            (taint,) = own_taints(cool.kube.node(node))
            assert _reason(cool, node) == ("True", "Hot")
            found = _record(cool, node)
            assert (found.state, found.applied) == (Heat.HOT, taint["effect"])
            assert found.hot_entries == {"npu0": entries + 1}

            cool.hold(node, COOL)
            until(
                lambda: killer.killed_at("condition TemperatureNormal"),
                seconds=500,
                what="the last of the cooling",
            )
            until(
                lambda: _reason(cool, node),
                lambda told: told == ("False", "TemperatureNormal"),
                seconds=90,
                what=f"{node} calm again",
            )
        assert killer.problems == []
        for one in killer.done:
            measure(f"guard killed at: {one.write}, {'' if one.stored else 'not '}stored")
        assert len(killer.done) >= 10
        assert {count for count, _ in seen} == {0, 1}
        assert {text for _, text in seen} == {others}
        calm = cool.kube.node(node)
        assert own_taints(calm) == []
        assert other_taints(calm) == others
        found = _record(cool, node)
        assert (found.state, found.applied) == (Heat.COOL, None)
    finally:
        for taint in FOREIGN:
            cool.kube.kubectl(
                "taint", "node", node, f"{taint.partition(':')[0].partition('=')[0]}-"
            )

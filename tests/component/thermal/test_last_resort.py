"""NoExecute where it is asked for, and taints that a person wants left alone."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.component.fake_apiserver import FakeApiServer, Json
from tests.component.thermal.guard_rig import Board, Rig, hot_taint
from thermal.api import NODES
from thermal.config import Config
from thermal.eviction import Eviction
from thermal.names import HOLD_UNTIL, TAINT_CRITICAL


@pytest.fixture
def boards(server: FakeApiServer) -> dict[str, Board]:
    """Six nodes, so that the budget closes two."""
    for index in range(3, 7):
        server.add_node(f"n{index}")
        server.add_exporter(f"n{index}", f"127.0.0.{index}")
    return {f"n{index}": Board() for index in range(1, 7)}


EXPELLING = Config(eviction=Eviction(states=("critical", "emergency"), no_execute=True))


def critical_taint(node: Json) -> Json | None:
    """Return our taint that deletes Pods."""
    taints: list[Json] = node["spec"].get("taints", [])
    return next((taint for taint in taints if taint["key"] == TAINT_CRITICAL), None)


def test_pods_are_deleted_only_after_the_time_for_eviction(
    server: FakeApiServer, boards: dict[str, Board]
) -> None:
    """Critical for two minutes, then NoExecute; gone when the board is hot only."""
    rig = Rig(server, boards, config=EXPELLING).run(30).heat("n1", 92.0)
    assert rig.run(40).state("n1") == "critical"
    assert hot_taint(server.node("n1")) is not None
    assert critical_taint(server.node("n1")) is None

    rig.run(100)
    assert critical_taint(server.node("n1")) == {"key": TAINT_CRITICAL, "effect": "NoExecute"}

    boards["n1"].celsius = 74.0
    rig.run(240)
    assert rig.state("n1") == "hot"
    assert critical_taint(server.node("n1")) is None
    assert hot_taint(server.node("n1")) is not None


def test_blind_node_keeps_the_critical_taint_for_a_quarter_of_an_hour(
    server: FakeApiServer, boards: dict[str, Board]
) -> None:
    """Missing data begins nothing, and ends what only a reading could justify."""
    rig = Rig(server, boards, config=EXPELLING).run(30).heat("n1", 92.0).run(200)
    boards["n1"].celsius = None

    rig.run(800)
    assert critical_taint(server.node("n1")) is not None
    rig.run(120)
    assert critical_taint(server.node("n1")) is None
    assert hot_taint(server.node("n1")) is not None


def test_control_plane_is_never_emptied_by_force(
    server: FakeApiServer, boards: dict[str, Board]
) -> None:
    """A k3s server takes Pods like any node; its own must not be deleted."""
    server.edit_node("n1", lambda node: _label(node, "node-role.kubernetes.io/control-plane"))
    rig = Rig(server, boards, config=EXPELLING).run(30).heat("n1", 92.0).run(300)

    assert rig.state("n1") == "critical"
    assert hot_taint(server.node("n1")) is not None
    assert critical_taint(server.node("n1")) is None


@pytest.mark.parametrize("closed", [False, True])
def test_taints_rest_until_the_time_a_person_named(
    server: FakeApiServer, boards: dict[str, Board], *, closed: bool
) -> None:
    """Neither set nor removed before; afterwards as the heat demands."""
    rig = Rig(server, boards).run(30)
    if closed:
        rig.heat("n1")
    server.edit_node("n1", lambda node: _hold(node, timedelta(hours=1)))
    if closed:
        boards["n1"].celsius = 40.0
        rig.run(600)
    else:
        rig.heat("n1").run(60)
    assert (hot_taint(server.node("n1")) is not None) == closed

    server.edit_node("n1", lambda node: _hold(node, -timedelta(hours=1)))
    rig.run(10)
    assert (hot_taint(server.node("n1")) is not None) != closed


def test_critical_heat_does_not_wait(server: FakeApiServer, boards: dict[str, Board]) -> None:
    """A board near its power-off is closed whatever the annotation says; nonsense says nothing."""
    server.edit_node("n1", lambda node: _hold(node, timedelta(hours=1)))
    server.edit_node("n2", lambda node: node["metadata"].update(annotations={HOLD_UNTIL: "soon"}))
    Rig(server, boards).run(30).heat("n1", 92.0).heat("n2").run(60)

    assert hot_taint(server.node("n1")) is not None
    assert hot_taint(server.node("n2")) is not None
    assert server.node("n1")["metadata"]["annotations"][HOLD_UNTIL]
    assert len(server.objects(NODES)) >= 2


def _label(node: Json, key: str) -> None:
    node["metadata"].setdefault("labels", {})[key] = ""


def _hold(node: Json, left: timedelta) -> None:
    until = datetime.now(UTC) + left
    annotations = node["metadata"].setdefault("annotations", {})
    annotations[HOLD_UNTIL] = until.strftime("%Y-%m-%dT%H:%M:%SZ")

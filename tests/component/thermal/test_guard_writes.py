"""What the guard writes on Nodes, over real HTTP, with the default times."""

import json
from typing import Any

import pytest

from tests.component.fake_apiserver import FakeApiServer, Json, RefusedError, Seen
from tests.component.thermal.guard_rig import Board, Rig, condition, hot_taint
from thermal.config import Config
from thermal.names import ANNOTATION_LABELS, ANNOTATION_STATE, OVERRIDE, TAINT_HOT

FOREIGN = {"key": "foreign", "value": "v", "effect": "NoSchedule"}


@pytest.fixture
def boards() -> dict[str, Board]:
    """Give both nodes a cool board."""
    return {"n1": Board(), "n2": Board()}


def record(node: Json) -> dict[str, Any]:
    return dict(json.loads(node["metadata"]["annotations"][ANNOTATION_STATE]))


def test_a_hot_node_is_tainted_and_everything_else_stays(
    server: FakeApiServer, boards: dict[str, Board]
) -> None:
    """Taint, condition, record and Event on the hot node; nothing on its neighbour's taints."""
    Rig(server, boards).run(30).heat("n1")

    node = server.node("n1")
    assert node["spec"]["taints"] == [
        FOREIGN,
        {"key": TAINT_HOT, "value": "80", "effect": "NoSchedule"},
    ]
    assert (condition(node) or {})["reason"] == "Hot"
    assert {c["type"] for c in node["status"]["conditions"]} == {"Ready", "NPUOverheated"}
    assert record(node)["applied"] == "NoSchedule"
    assert node["metadata"]["labels"]["rockchip.com/npu-model"] == "rk3588"
    assert node["metadata"]["labels"]["a"] == "b"
    assert hot_taint(server.node("n2")) is None
    events = server.objects("/apis/events.k8s.io/v1/namespaces/default/events")
    assert [event["reason"] for event in events] == ["NPUHot"]


def test_a_cooled_node_is_released_after_its_hold(
    server: FakeApiServer, boards: dict[str, Board]
) -> None:
    """Load gone: still tainted after two minutes, open after the hold, cool after ten more."""
    rig = Rig(server, boards).run(30).heat("n1")
    boards["n1"].celsius = 60.0

    assert hot_taint(rig.run(100).server.node("n1")) is not None
    assert hot_taint(rig.run(120).server.node("n1")) is None
    assert (condition(server.node("n1")) or {})["reason"] == "Recovering"
    rig.run(620)
    assert (condition(server.node("n1")) or {})["reason"] == "TemperatureNormal"
    assert server.node("n1")["spec"]["taints"] == [FOREIGN]


def test_a_quiet_fleet_is_written_once(server: FakeApiServer, boards: dict[str, Board]) -> None:
    """Record, labels and condition at the start, then nothing however long it runs."""
    rig = Rig(server, boards).run(30)
    written = len(server.writes())

    rig.run(600)

    assert written == 4
    assert len(server.writes()) == written


def test_a_taint_set_in_between_survives(server: FakeApiServer, boards: dict[str, Board]) -> None:
    """Another controller taints the node between our read and our write: both are kept."""
    other = {"key": "autoscaler", "effect": "NoSchedule"}
    rig = Rig(server, boards).run(30)
    done: list[bool] = []

    def taint_concurrently(seen: Seen) -> None:
        if not done and seen.path == "/api/v1/nodes/n1" and "spec" in (seen.body or {}):
            done.append(True)
            node = server.node("n1")
            node["spec"]["taints"].append(other)
            server.put("/api/v1/nodes/n1", node)

    server.between = taint_concurrently
    rig.heat("n1")

    assert done
    taints = server.node("n1")["spec"]["taints"]
    assert [taint["key"] for taint in taints] == ["foreign", "autoscaler", TAINT_HOT]


def test_a_stale_cache_loses_nothing(server: FakeApiServer, boards: dict[str, Board]) -> None:
    """The cache shows the node as it was; the write is computed from the node as it is."""
    rig = Rig(server, boards).run(30)
    rig.cluster.lag = rig.cluster.nodes()
    node = server.node("n1")
    node["spec"]["taints"] = [{"key": "new", "effect": "NoExecute"}]
    server.put("/api/v1/nodes/n1", node)

    rig.heat("n1")

    taints = server.node("n1")["spec"]["taints"]
    assert [taint["key"] for taint in taints] == ["new", TAINT_HOT]


def test_every_node_write_is_conditional(server: FakeApiServer, boards: dict[str, Board]) -> None:
    """Merge patches of Nodes carry the resource version; conditions go by strategic merge."""
    Rig(server, boards).run(30).heat("n1")

    patches = [seen for seen in server.writes() if seen.method == "PATCH"]
    assert patches
    for seen in patches:
        assert seen.agent.startswith("npu-platform-guard/")
        if seen.path.endswith("/status"):
            assert seen.content_type == "application/strategic-merge-patch+json"
        else:
            assert seen.content_type == "application/merge-patch+json"
            assert "resourceVersion" in (seen.body or {})["metadata"]


def test_a_restart_changes_nothing_on_a_hot_node(
    server: FakeApiServer, boards: dict[str, Board]
) -> None:
    """A new guard adopts the record: no write at all while the board stays hot."""
    rig = Rig(server, boards).run(30).heat("n1")
    before = server.node("n1")
    written = len(server.writes())

    Rig(server, boards, now=rig.now + 5).run(90)

    assert server.node("n1") == before
    assert len(server.writes()) == written


def test_a_restart_does_not_release_a_board_that_cooled_meanwhile(
    server: FakeApiServer, boards: dict[str, Board]
) -> None:
    """The hold starts again: a roll-out of the guard never unties hot nodes at once."""
    rig = Rig(server, boards).run(30).heat("n1")
    boards["n1"].celsius = 60.0

    successor = Rig(server, boards, now=rig.now + 5).run(170)

    assert hot_taint(server.node("n1")) is not None
    assert hot_taint(successor.run(30).server.node("n1")) is None


def test_a_leader_change_does_not_flicker(server: FakeApiServer, boards: dict[str, Board]) -> None:
    """The old leader stops at once, the new one changes nothing that is right."""
    old = Rig(server, boards).run(30).heat("n1")
    new = Rig(server, boards, now=old.now)
    before = server.node("n1")

    old.leadership.term = None
    for _ in range(120):
        old.run(1)
        new.run(1)

    assert server.node("n1") == before
    assert old.judge.judgement is None
    assert b"npu_thermal_guard_leader 0.0" in old.metrics.exposition()
    assert b'node="n1"' not in old.metrics.exposition()
    assert b'npu_thermal_guard_taint_active{node="n1"} 1.0' in new.metrics.exposition()


def test_leadership_lost_before_a_write_prevents_it(
    server: FakeApiServer, boards: dict[str, Board]
) -> None:
    """Between read and write the term ends: nothing is sent."""
    rig = Rig(server, boards).run(30)
    before = len(server.writes())

    def lose(seen: Seen) -> None:
        if seen.method == "GET" and seen.path == "/api/v1/nodes/n1":
            rig.leadership.term = None

    server.refuse = lose
    rig.heat("n1")

    assert rig.leadership.term is None
    assert [seen for seen in server.writes()[before:] if "spec" in (seen.body or {})] == []


def test_observe_writes_nothing(server: FakeApiServer, boards: dict[str, Board]) -> None:
    """Judged, measured, and not one write."""
    rig = Rig(server, boards, config=Config(mode="observe")).run(30).heat("n1")

    assert rig.state("n1") == "hot"
    assert server.writes() == []


def test_taint_none_keeps_nodes_open(server: FakeApiServer, boards: dict[str, Board]) -> None:
    """Condition and record tell; the taint list is not touched."""
    Rig(server, boards, config=Config(taint="none")).run(30).heat("n1")

    assert server.node("n1")["spec"]["taints"] == [FOREIGN]
    assert (condition(server.node("n1")) or {})["status"] == "True"


def test_a_disabled_node_is_let_go(server: FakeApiServer, boards: dict[str, Board]) -> None:
    """The label takes taint, condition and record off, and keeps them off."""
    rig = Rig(server, boards).run(30).heat("n1")
    node = server.node("n1")
    node["metadata"]["labels"][OVERRIDE] = "disabled"
    server.put("/api/v1/nodes/n1", node)

    rig.run(30)

    node = server.node("n1")
    assert hot_taint(node) is None
    assert condition(node) is None
    assert ANNOTATION_STATE not in node["metadata"]["annotations"]


def test_an_observed_node_is_left_as_it_is(server: FakeApiServer, boards: dict[str, Board]) -> None:
    """The annotation stops all writes to this node, and to no other."""
    rig = Rig(server, boards).run(30)
    node = server.node("n1")
    node["metadata"]["annotations"][OVERRIDE] = "observe"
    server.put("/api/v1/nodes/n1", node)
    before = server.node("n1")

    rig.heat("n1").heat("n2")

    assert server.node("n1") == before
    assert hot_taint(server.node("n2")) is not None


def test_a_taint_removed_by_hand_comes_back_after_ten_minutes(
    server: FakeApiServer, boards: dict[str, Board]
) -> None:
    """A person who takes the taint away gets ten minutes."""
    rig = Rig(server, boards).run(30).heat("n1")
    node = server.node("n1")
    node["spec"]["taints"] = [FOREIGN]
    server.put("/api/v1/nodes/n1", node)

    assert hot_taint(rig.run(590).server.node("n1")) is None
    assert hot_taint(rig.run(30).server.node("n1")) is not None


def test_critical_heat_overrides_a_removal_by_hand(
    server: FakeApiServer, boards: dict[str, Board]
) -> None:
    """When it gets critical the taint is set again at once."""
    rig = Rig(server, boards).run(30).heat("n1")
    node = server.node("n1")
    node["spec"]["taints"] = [FOREIGN]
    server.put("/api/v1/nodes/n1", node)
    rig.run(30)

    boards["n1"].celsius = 95.0
    rig.run(60)

    assert rig.state("n1") == "critical"
    assert hot_taint(server.node("n1")) is not None


def test_lost_data_keeps_a_hot_node_closed(server: FakeApiServer, boards: dict[str, Board]) -> None:
    """Exporter dead for an hour: closed, condition Unknown, one Event."""
    rig = Rig(server, boards).run(30).heat("n1")
    boards["n1"].reachable = False

    rig.run(3600)

    node = server.node("n1")
    assert hot_taint(node) is not None
    assert (condition(node) or {})["status"] == "Unknown"
    assert (condition(node) or {})["reason"] == "SensorLost"
    events = server.objects("/apis/events.k8s.io/v1/namespaces/default/events")
    assert [event["reason"] for event in events] == ["NPUHot", "NPUSensorLost"]


def test_a_node_whose_exporter_was_taken_away_is_released(
    server: FakeApiServer, boards: dict[str, Board]
) -> None:
    """No exporter Pod for half an hour on a Ready node: nobody will report again."""
    rig = Rig(server, boards).run(30).heat("n1")
    server.delete("/api/v1/namespaces/npu/pods/exporter-n1")

    assert hot_taint(rig.run(1700).server.node("n1")) is not None
    rig.run(200)

    node = server.node("n1")
    assert node["spec"]["taints"] == [FOREIGN]
    assert condition(node) is None
    assert node["metadata"]["labels"]["rockchip.com/npu"] == "true"
    assert rig.state("n1") is None


def test_a_hot_node_that_leaves_claims_is_tainted_within_a_turn(
    server: FakeApiServer, boards: dict[str, Board]
) -> None:
    """Its device plugin is about to offer the NPU; nothing else changes on the node meanwhile."""
    rig = Rig(server, boards)
    rig.cluster.with_claims = frozenset(boards)
    rig.heat("n1")
    assert hot_taint(server.node("n1")) is None
    rig.cluster.lag = rig.cluster.nodes()
    rig.actor.step()
    rig.cluster.with_claims = frozenset()
    rig.actor.step()
    assert hot_taint(server.node("n1")) is not None


def test_ascend_is_judged_and_not_written(server: FakeApiServer) -> None:
    """Its limits are not verified: observe by default."""
    boards = {"n1": Board(vendor="huawei", model="310P3"), "n2": Board()}

    rig = Rig(server, boards).run(30).heat("n1")

    assert rig.state("n1") == "hot"
    assert {seen.path.split("/")[4] for seen in server.writes()} == {"n2"}


def test_control_plane_nodes_that_take_no_work_are_not_managed(server: FakeApiServer) -> None:
    """Their own taint keeps Pods away already."""
    server.add_node(
        "n1", taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
    )
    boards = {"n1": Board(), "n2": Board()}

    assert Rig(server, boards).run(30).state("n1") is None
    assert Rig(server, boards, config=Config(include_control_plane=True)).run(30).state("n1")


def test_an_unavailable_server_is_asked_less_and_less(
    server: FakeApiServer, boards: dict[str, Board]
) -> None:
    """Failing writes back off; the state machine goes on; later everything is put right."""
    rig = Rig(server, boards).run(30)
    refused: list[Seen] = []

    def unavailable(seen: Seen) -> None:
        if seen.method == "PATCH":
            refused.append(seen)
            raise RefusedError(503, "etcd is slow")

    server.refuse = unavailable
    rig.heat("n1").run(600)
    assert rig.state("n1") == "hot"
    assert 0 < len(refused) < 60
    exposition = rig.metrics.exposition().decode()
    assert 'api_errors_total{operation="patch",reason="unavailable"}' in exposition

    server.refuse = lambda _seen: None
    rig.run(61)
    assert hot_taint(server.node("n1")) is not None


def test_writes_are_paced(server: FakeApiServer) -> None:
    """Many nodes at once are written ten a second, not all in one turn."""
    names = [f"m{index:02}" for index in range(40)]
    for index, name in enumerate(names):
        server.add_node(name)
        server.add_exporter(name, f"127.0.1.{index}")
    boards = {name: Board() for name in ["n1", "n2", *names]}

    rig = Rig(server, boards).run(11)
    first = {seen.path for seen in server.writes() if seen.path.endswith("/status")}
    rig.run(10)
    last = {seen.path for seen in server.writes() if seen.path.endswith("/status")}

    assert len(first) <= 10
    assert len(last) == 42


def test_labels_set_by_hand_stay(server: FakeApiServer, boards: dict[str, Board]) -> None:
    """A person's model label is neither changed nor owned."""
    node = server.node("n1")
    node["metadata"]["labels"]["rockchip.com/npu-model"] = "mine"
    server.put("/api/v1/nodes/n1", node)

    Rig(server, boards).run(30)

    metadata = server.node("n1")["metadata"]
    assert metadata["labels"]["rockchip.com/npu-model"] == "mine"
    assert "npu-model" not in metadata["annotations"][ANNOTATION_LABELS]


def effects(server: FakeApiServer) -> list[str | None]:
    nodes = sorted(server.objects("/api/v1/nodes"), key=lambda one: str(one["metadata"]["name"]))
    return [(hot_taint(node) or {}).get("effect") for node in nodes]


def test_all_nodes_hot_at_once(server: FakeApiServer) -> None:
    """A failed room: within the budget nodes are closed, the others avoided; all are released."""
    boards = {"n1": Board(), "n2": Board()}
    for index in range(3, 8):
        server.add_node(f"n{index}")
        server.add_exporter(f"n{index}", f"127.0.0.{index}")
        boards[f"n{index}"] = Board()
    rig = Rig(server, boards).run(30)
    for board in boards.values():
        board.celsius = 66.0
    rig.run(20)
    for index, board in enumerate(boards.values()):
        board.celsius = 81.5 + index
    closed: list[int] = []
    for _ in range(60):
        rig.run(1)
        closed.append(effects(server).count("NoSchedule"))

    assert max(closed) == 2
    assert effects(server) == ["PreferNoSchedule"] * 5 + ["NoSchedule"] * 2
    page = rig.metrics.exposition().decode()
    assert 'npu_thermal_guard_held_back_nodes{reason="budget"} 5.0' in page
    assert 'npu_thermal_guard_budget_used{name="",scope="resource"} 2.0' in page
    assert 'npu_thermal_guard_storm_active{name="",scope="cluster"} 1.0' in page
    events = server.objects("/apis/events.k8s.io/v1/namespaces/default/events")
    assert [e["reason"] for e in events].count("NPUStorm") == 1

    for board in boards.values():
        board.celsius = 60.0
    rig.run(300)
    assert effects(server) == [None] * 7
    rig.run(700)
    events = server.objects("/apis/events.k8s.io/v1/namespaces/default/events")
    assert [e["reason"] for e in events].count("NPUStormOver") == 1


def test_a_new_leader_moves_no_taint(server: FakeApiServer) -> None:
    """Budget places are on the Nodes: the successor closes the same nodes, and writes nothing."""
    boards = {"n1": Board(), "n2": Board()}
    Rig(server, boards).run(30).heat("n1").heat("n2", 84.0)
    before = effects(server)
    written = len(server.writes())

    Rig(server, boards, now=9000.0).run(120)

    assert before == ["NoSchedule", "PreferNoSchedule"]
    assert effects(server) == before
    assert len(server.writes()) == written


def test_the_only_node_stays_open(server: FakeApiServer) -> None:
    """A cluster of one node is told about its heat, and keeps working."""
    server.delete("/api/v1/nodes/n2")
    Rig(server, {"n1": Board()}).run(30).heat("n1")

    assert hot_taint(server.node("n1")) is None
    assert (condition(server.node("n1")) or {})["reason"] == "Hot"

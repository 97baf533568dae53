"""Evictions over real HTTP: NPU Pods only, by the Eviction API, at the pace of the rules."""

from collections.abc import Callable

import msgspec
import pytest

from tests.component.fake_apiserver import FakeApiServer, RefusedError, Seen
from tests.component.thermal.guard_rig import Board, Rig, hot_taint
from thermal.config import Config
from thermal.dra.claimed import ClaimedDevices
from thermal.dra.slices import SliceRecord
from thermal.eviction import Eviction
from thermal.names import OVERRIDE

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
CRITICAL = Config(eviction=Eviction(states=("critical", "emergency")))


@pytest.fixture
def boards(server: FakeApiServer) -> dict[str, Board]:
    """Six nodes with a cool board and one NPU each."""
    for index in range(3, 7):
        server.add_node(f"n{index}")
        server.add_exporter(f"n{index}", f"127.0.0.{index}")
    for index in range(1, 7):
        node = server.node(f"n{index}")
        node["status"]["allocatable"] = {"rockchip.com/npu": "1"}
        node["spec"].pop("taints", None)
        server.put(f"/api/v1/nodes/n{index}", node)
    return {f"n{index}": Board() for index in range(1, 7)}


def evictions(server: FakeApiServer) -> list[str]:
    """Return the Pods that were asked to leave, in order."""
    return [seen.path.split("/")[-2] for seen in server.requests if seen.path.endswith("/eviction")]


def reasons(server: FakeApiServer) -> list[str]:
    return [e["reason"] for e in server.objects(EVENTS) if e["regarding"]["kind"] == "Pod"]


def refuse_eviction(code: int) -> Callable[[Seen], None]:
    def refuse(seen: Seen) -> None:
        if seen.path.endswith("/eviction"):
            raise RefusedError(code, "Cannot evict pod as it would violate the disruption budget.")

    return refuse


def emergency(rig: Rig, *nodes: str) -> Rig:
    """Bring boards to 102 °C in believable steps."""
    for celsius in (66.0, 84.0, 102.0):
        for node in nodes:
            rig.boards[node].celsius = celsius
        rig.run(20)
    return rig


def test_an_emergency_takes_npu_pods_away(server: FakeApiServer, boards: dict[str, Board]) -> None:
    """Only those with an NPU, after the taint, each told by an Event."""
    server.add_pod("heats", "n1")
    server.add_pod("web", "n1", npus=0)
    server.add_pod("elsewhere", "n2")

    rig = emergency(Rig(server, boards).run(30), "n1")

    assert evictions(server) == ["heats"]
    assert hot_taint(server.node("n1")) is not None
    pods = server.objects("/api/v1/namespaces/default/pods")
    assert [pod["metadata"]["name"] for pod in pods] == ["elsewhere", "web"]
    assert reasons(server) == ["NPUEvicted"]
    told = [(entry.kind, entry.reason) for entry in reversed(rig.journal.entries(node="n1"))]
    assert told[-1] == ("eviction", "evicted")
    assert ("state", "temperature") in told
    assert ("written", "Emergency") in told
    paths = [(seen.method, seen.path) for seen in server.requests]
    taint = paths.index(("PATCH", "/api/v1/nodes/n1"), 0)
    assert taint < next(i for i, (_, path) in enumerate(paths) if path.endswith("/eviction"))
    body = next(seen.body for seen in server.requests if seen.path.endswith("/eviction")) or {}
    assert body["deleteOptions"] == {"preconditions": {"uid": "uid-heats"}}


def test_critical_is_opt_in(server: FakeApiServer, boards: dict[str, Board]) -> None:
    """By default a critical node keeps its Pods; configured, it gives them up."""
    server.add_pod("heats", "n1")
    Rig(server, boards).run(30).heat("n1", 90.0).run(120)
    assert evictions(server) == []

    Rig(server, boards, config=CRITICAL, now=9000.0).run(120)
    assert evictions(server) == ["heats"]


def test_a_disruption_budget_is_respected(server: FakeApiServer, boards: dict[str, Board]) -> None:
    """429: the Pod stays and is asked again every ten seconds, announced once."""
    server.add_pod("guarded", "n1")
    server.refuse = refuse_eviction(429)
    rig = emergency(Rig(server, boards).run(30), "n1").run(60)

    assert 6 <= len(evictions(server)) <= 9
    assert reasons(server) == ["NPUEvictionBlocked"]
    assert 'evictions_total{outcome="evicted"} 0.0' in rig.metrics.exposition().decode()
    server.refuse = lambda _seen: None
    rig.run(15)
    assert reasons(server) == ["NPUEvictionBlocked", "NPUEvicted"]


def test_retry_after_is_obeyed(server: FakeApiServer, boards: dict[str, Board]) -> None:
    """The server says when to come again."""
    server.retry_after = 60
    server.add_pod("guarded", "n1")
    server.refuse = refuse_eviction(429)

    emergency(Rig(server, boards).run(30), "n1").run(30)

    assert len(evictions(server)) == 1


def test_without_a_destination_critical_pods_stay(
    server: FakeApiServer, boards: dict[str, Board]
) -> None:
    """All other devices are taken: leaving would only mean not running. An emergency leaves."""
    for index in range(1, 7):
        server.add_pod(f"p{index}", f"n{index}")
    rig = Rig(server, boards, config=CRITICAL).run(30).heat("n1", 90.0).run(60)
    assert evictions(server) == []
    assert 'outcome="no_destination"} 0.0' not in rig.metrics.exposition().decode()

    server.delete("/api/v1/namespaces/default/pods/p5")
    rig.run(40)
    assert evictions(server) == ["p1"]

    emergency(rig, "n2")
    assert evictions(server) == ["p1", "p2"]


def test_nodes_are_emptied_one_after_the_other(
    server: FakeApiServer, boards: dict[str, Board]
) -> None:
    """Two of six are closed; the second one waits for half a minute."""
    for index in (1, 2):
        server.add_pod(f"p{index}", f"n{index}")
    rig = Rig(server, boards, config=CRITICAL).run(30)
    for celsius in (66.0, 90.0):
        boards["n1"].celsius = boards["n2"].celsius = celsius
        rig.run(20)
    times = []
    for _ in range(80):
        before = len(evictions(server))
        rig.run(1)
        times += [rig.now] * (len(evictions(server)) - before)

    assert sorted(evictions(server)) == ["p1", "p2"]
    assert len(times) < 2 or times[1] - times[0] >= 29


def test_a_storm_keeps_critical_pods(server: FakeApiServer, boards: dict[str, Board]) -> None:
    """Three of six at once: the room failed, and moving work only heats the next board."""
    for index in range(1, 4):
        server.add_pod(f"p{index}", f"n{index}")
    rig = Rig(server, boards, config=CRITICAL).run(30)
    for celsius in (66.0, 90.0):
        for index in range(1, 4):
            boards[f"n{index}"].celsius = celsius
        rig.run(20)

    rig.run(120)

    assert evictions(server) == []
    assert 'held_back_nodes{reason="storm"} 3.0' in rig.metrics.exposition().decode()


@pytest.mark.parametrize("how", ["observe", "label", "off", "standby"])
def test_who_may_not_act_evicts_nothing(
    server: FakeApiServer, boards: dict[str, Board], how: str
) -> None:
    """Observe mode, a person's label, the switch, and a replica that does not lead."""
    server.add_pod("heats", "n1")
    config = Config(mode="observe") if how == "observe" else Config()
    if how == "off":
        config = Config(eviction=Eviction(enabled=False))
    if how == "label":
        node = server.node("n1")
        node["metadata"]["labels"][OVERRIDE] = "observe"
        server.put("/api/v1/nodes/n1", node)
    rig = Rig(server, boards, config=config)
    if how == "standby":
        rig.leadership.term = None

    emergency(rig.run(30), "n1")

    assert evictions(server) == []


def test_a_pod_with_a_claim_of_its_own_leaves_too(
    server: FakeApiServer, boards: dict[str, Board]
) -> None:
    """Its limits say nothing; the claim says which device of which node it was given."""
    driver = "npu.rockchip.com"
    for name, pool in (("mine", "n1"), ("another", "n2")):
        results = [{"driver": driver, "pool": pool, "device": "npu0", "request": "npu"}]
        server.put(
            f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}",
            {
                "metadata": {"name": name},
                "status": {"allocation": {"devices": {"results": results}}},
            },
        )
    own = [{"name": "npu", "resourceClaimName": "mine"}]
    made = [{"name": "npu", "resourceClaimTemplateName": "template"}]
    server.add_pod("heats", "n1", npus=0, resourceClaims=own)
    path = server.add_pod("made", "n1", npus=0, resourceClaims=made)
    pod = server.object(path)
    pod["status"]["resourceClaimStatuses"] = [{"name": "npu", "resourceClaimName": "mine"}]
    server.put(path, pod)
    other = [{"name": "gpu", "resourceClaimName": "another"}]
    server.add_pod("elsewhere", "n1", npus=0, resourceClaims=other)
    server.add_pod("lost", "n1", npus=0, resourceClaims=[{"name": "npu", "resourceClaimName": "x"}])
    device = {"name": "npu0", "attributes": {"resource": {"string": "rockchip.com/npu"}}}
    published = SliceRecord(
        name="s", driver=driver, node="n1", generation=1, resource_version="1", devices=(device,)
    )
    rig = Rig(server, boards).run(30)
    claimed = ClaimedDevices(rig.client, lambda: {"s": published})
    assert claimed(server.object(path)) == {"rockchip.com/npu": 1}
    rig.evictor.claimed = claimed

    server.add_pod("limits", "n1")
    refused = Rig(server, boards)
    refused.evictor.claimed = ClaimedDevices(refused.client, lambda: {"s": published})

    def refuse(seen: Seen) -> None:
        if "/resourceclaims/" in seen.path:
            raise RefusedError(403, "resourceclaims is forbidden")

    server.refuse = refuse
    emergency(refused.run(30), "n1")
    assert evictions(server) == ["limits"]
    server.refuse = lambda _seen: None

    emergency(rig, "n1")

    assert sorted(evictions(server)) == ["heats", "limits", "made"]


@pytest.mark.parametrize(
    ("taint", "evicted"), [("PreferNoSchedule", ["heats"]), ("NoSchedule", [])]
)
def test_devices_that_cannot_be_avoided_are_emptied_without_a_mark(
    server: FakeApiServer, boards: dict[str, Board], taint: str, evicted: list[str]
) -> None:
    """With a soft taint no rule closes them, and an emergency does not wait for one."""
    server.add_pod("heats", "n1")
    rig = Rig(server, boards, config=msgspec.convert({"taint": taint}, Config)).run(30)
    rig.cluster.with_claims = frozenset(boards)

    emergency(rig, "n1")

    assert hot_taint(server.node("n1")) is None
    assert evictions(server) == evicted


def test_a_replaced_pod_is_not_evicted(server: FakeApiServer, boards: dict[str, Board]) -> None:
    """The Pod was listed, then replaced by one of the same name: the precondition refuses."""
    path = server.add_pod("heats", "n1")
    replaced: list[bool] = []

    def replace_first(seen: Seen) -> None:
        if seen.path.endswith("/eviction") and not replaced:
            replaced.append(True)
            pod = server.object(path)
            pod["metadata"]["uid"] = "another"
            server.put(path, pod)

    server.refuse = replace_first
    rig = Rig(server, boards).run(30)
    for celsius in (66.0, 84.0, 102.0):
        boards["n1"].celsius = celsius
        rig.run(20)
        if replaced:
            break

    assert 'evictions_total{outcome="gone"} 1.0' in rig.metrics.exposition().decode()

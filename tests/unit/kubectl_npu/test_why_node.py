"""What a node offers, and why not."""

from kubectl_npu.picture import Picture
from kubectl_npu.why_node import explain
from tests.unit.kubectl_npu.objects import HOT, RESOURCE, Json, node, pod, recorded


def answers(item: Json, **known: object) -> dict[str, str]:
    """Return text by check."""
    picture = Picture(nodes=[item], resources={RESOURCE}, **known)  # type: ignore[arg-type]
    return {finding.check: finding.text for finding in explain(item, picture)}


def plugin(*, ready: bool) -> Json:
    """Return the plugin's Pod of n1."""
    made = pod("plugin-x", on="n1", asks=0)
    made["metadata"]["labels"]["app.kubernetes.io/component"] = "plugin"
    made["status"]["conditions"] = [{"type": "Ready", "status": str(ready)}]
    return made


def test_healthy_node_tells_offer_and_holder() -> None:
    """Nothing keeps Pods away; one has the only NPU."""
    said = answers(node(), pods=[pod("has-it", on="n1")])
    assert list(said) == ["offer"]
    assert "allocatable 1, free 0; held by team/has-it" in said["offer"]


def test_hot_node_tells_state_decisions_and_who_holds_it() -> None:
    """The guard's page, its last decisions, and a hold set by a person."""
    hot = node("node1", taints=[HOT])
    hot["metadata"]["annotations"] = {"thermal.npu-platform.io/hold-until": "2026-12-02T00:00:00Z"}
    page = {item["node"]: item for item in recorded("guard-nodes.json")["nodes"]}
    decisions = recorded("guard-decisions.json")["decisions"]
    picture = Picture(nodes=[hot], guard=page, decisions=decisions, resources={RESOURCE})
    found = list(explain(hot, picture))
    assert [item.check for item in found] == ["heat", "guard", "guard", "guard", "offer"]
    assert "thermal.npu-platform.io/hot=80:NoSchedule" in found[0].text
    assert "2026-12-02" in found[0].remedy
    assert "npu0: recovering -> cool" in found[2].text


def test_withdrawn_and_refused_devices_have_the_plugins_reasons() -> None:
    """Allocatable 0 with a capacity, and hardware that is not offered at all."""
    page = recorded("allocations.json")
    page["devices"][0] |= {"state": "withdrawn", "reason": "heat", "detail": "npu0 is critical"}
    page["notOffered"] = [{"what": "fdab0000.npu", "reason": "driver_not_bound", "detail": ""}]
    item = node(offers=0, capacity=1)
    picture = Picture(nodes=[item], allocations={"n1": page}, resources={RESOURCE})
    found = [finding.text for finding in explain(item, picture)]
    assert "capacity 1, allocatable 0" in found[0]
    assert "npu0 (rockchip.com/npu) is withdrawn: heat: npu0 is critical" in found[1]
    assert "driver_not_bound" in found[2]


def test_node_without_offer() -> None:
    """No plugin there, one that is not ready, and one that found nothing."""
    bare = node(offers=0)
    assert "no device plugin runs there" in answers(bare)["plugin"]
    assert "is not ready" in answers(bare, pods=[plugin(ready=False)])["plugin"]
    assert "found none" in answers(bare, pods=[plugin(ready=True)])["plugin"]


def test_node_that_is_down_or_closed_by_others() -> None:
    """Cordon, taint, not Ready."""
    down = node(unschedulable=True, taints=[{"key": "spare", "effect": "NoExecute"}])
    down["status"]["conditions"] = []
    assert {"node", "cordon", "taint"} <= answers(down).keys()

"""Each cause for which a Pod has no NPU is named, with what to do."""

from dataclasses import replace

import pytest

from kubectl_npu.exposition import Sample
from kubectl_npu.finding import Finding
from kubectl_npu.picture import Picture
from kubectl_npu.why_pod import explain, refused
from tests.unit.kubectl_npu.objects import HOT, RESOURCE, Json, node, of_deployment, pod, recorded

WANTS = pod("wants")


def first(pod: Json, *nodes: Json, pods: tuple[Json, ...] = ()) -> Finding:
    """Return the first answer, which is the one to act on."""
    return next(explain(pod, Picture(nodes=nodes, pods=[*pods, pod], resources={RESOURCE})))


def test_no_request_is_told_with_the_line_to_write() -> None:
    """A Pod without limits would never get an NPU, however many are free."""
    answer = first(pod("forgot", asks=0), node())
    assert answer.check == "request"
    assert "limits" in answer.remedy


@pytest.mark.parametrize("nodes", [[], [node(offers=0, capacity=0)], [node(), node("n2")]])
def test_name_or_number_that_no_node_has(nodes: list[Json]) -> None:
    """Without any node nothing can be said but the scheduler's words."""
    answer = first(pod("many", asks=2), *nodes)
    assert answer.check == ("not registered" if nodes else "scheduler")


def test_selector_and_affinity_that_fit_nowhere() -> None:
    """Labels are compared as the scheduler does."""
    rule = {"key": "rockchip.com/npu-driver-version", "operator": "Gt", "values": ["907"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    old, new = node("old"), node("new")
    old["metadata"]["labels"][rule["key"]] = "907"
    new["metadata"]["labels"][rule["key"]] = "908"
    assert first(pod("picky", affinity=affinity), old).check == "selector"
    assert first(pod("picky", affinity=affinity), old, new).check == "scheduler"
    assert first(pod("picky", nodeSelector={"zone": "a"}), new).check == "selector"


def test_hot_node_is_told_with_the_guards_words() -> None:
    """From its page, or from the condition on the Node where the page cannot be opened."""
    hot = node("node1", taints=[HOT])
    picture = Picture(nodes=[hot], pods=[WANTS], resources={RESOURCE})
    condition = {"type": "NPUOverheated", "reason": "Hot", "lastTransitionTime": "12:00"}
    hot["status"]["conditions"].append(condition)
    assert "Hot since 12:00" in next(explain(WANTS, picture)).text
    page = {item["node"]: item for item in recorded("guard-nodes.json")["nodes"]}
    answer = next(explain(WANTS, replace(picture, guard=page)))
    assert answer.check == "heat"
    assert "at 45.5 °C since 2026-12-01T03:24:36Z, opens below 70.0 °C" in answer.text


@pytest.mark.parametrize(
    ("spec", "check"),
    [
        ({"unschedulable": True}, "cordon"),
        ({"taints": [{"key": "spare", "effect": "NoExecute"}]}, "taint"),
        ({"taints": [{"key": "spare", "effect": "PreferNoSchedule"}]}, "scheduler"),
    ],
)
def test_other_reasons_of_a_node(spec: Json, check: str) -> None:
    """A cordon, a taint of somebody else, and one that keeps nobody away."""
    assert first(WANTS, node(**spec)).check == check


@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"key": HOT["key"], "operator": "Exists", "effect": "NoSchedule"},
        {"key": HOT["key"], "value": "80"},
    ],
)
def test_tolerated_taints_keep_nobody_away(toleration: Json) -> None:
    """All three ways to write it."""
    assert first(pod("bold", tolerations=[toleration]), node(taints=[HOT])).check == "scheduler"


def test_all_in_use_names_the_holders() -> None:
    """And a free NPU that the board does not offer now."""
    answer = first(WANTS, node(), pods=(pod("has-it", on="n1"),))
    assert (answer.check, "team/has-it" in answer.text) == ("no capacity", True)
    ended = pod("ended", on="n1")
    ended["status"]["phase"] = "Succeeded"
    assert first(WANTS, node(), pods=(ended,)).check == "scheduler"
    withdrawn = first(WANTS, node(offers=0, capacity=1))
    assert "not offered now by n1" in withdrawn.text


def test_surge_that_waits_for_its_own_predecessor() -> None:
    """A rolling update on a full cluster never ends by itself."""
    old = of_deployment(pod("old", on="n1"), "detector", "aaa")
    new = of_deployment(pod("new"), "detector", "bbb")
    answer = first(new, node(), node("n2", taints=[HOT]), pods=(old,))
    assert (answer.check, answer.level) == ("surge", "fail")
    assert "maxSurge: 0" in answer.remedy
    sibling = of_deployment(pod("sibling", on="n1"), "detector", "bbb")
    assert first(new, node(), pods=(sibling,)).check == "no capacity"


def test_ghost_after_a_reboot_is_no_failure_of_the_program() -> None:
    """The kubelet's words are kept."""
    ghost = pod("ghost", on="n1")
    ghost["status"] = {
        "phase": "Failed",
        "reason": "UnexpectedAdmissionError",
        "message": "Allocate failed due to no healthy devices present",
    }
    answer = first(ghost, node())
    assert (answer.check, "no healthy devices" in answer.text) == ("ghost", True)


def test_gate_container_and_running() -> None:
    """What is past or before the scheduler."""
    gated = pod("gated", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    assert first(gated, node()).check == "gate"
    starting = pod("starting", on="n1")
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff"}}}
    starting["status"] = {"phase": "Pending", "containerStatuses": [waiting]}
    assert "ImagePullBackOff" in first(starting, node()).text
    labels = {"device": "npu0", "namespace": "team", "pod": "runs"}
    told = Sample(name="npu_device_allocation_info", value=1, labels=labels)
    picture = Picture(nodes=[node()], metrics={"n1": [told]}, resources={RESOURCE})
    assert "(npu0) on n1" in next(explain(pod("runs", on="n1"), picture)).text


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ('pods "d-x" is forbidden: exceeded quota: npu, requested: …', "larger share"),
        ("namespace team has no NPU quota; ask platform@example.com", "message names"),
        ("maximum rockchip.com/npu usage per Container is 1, but limit is 2", "limitrange"),
        ("something else", "own words"),
    ],
)
def test_pods_that_were_never_made(message: str, remedy: str) -> None:
    """Their controller was told why."""
    involved = {"kind": "ReplicaSet", "name": "detector-aaa"}
    events = [{"reason": "FailedCreate", "involvedObject": involved, "message": message}]
    earlier = {**events[0], "lastTimestamp": "2026-01-01T00:00:00Z", "message": "earlier"}
    picture = Picture(events=[{**events[0], "lastTimestamp": "2026-01-01T00:01:00Z"}, earlier])
    (answer,) = refused("detector", "team", picture)
    assert message in answer.text
    assert remedy in answer.remedy
    assert not list(refused("detect", "team", picture))

"""Heat: taint after the debounce, new work elsewhere, hold, release; restarts change nothing."""

import json
import time

import pytest

from ci.demo.story import NAMESPACE, RESOURCE, sample_pod
from ci.kube import Json, until
from tests.cluster.platform.installed import (
    COMPONENT,
    COOL,
    HOT,
    OWN,
    Platform,
    npu_pod,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

FOREIGN = "example.com/maintenance"


def test_default_timings_hold(cool: Platform) -> None:
    """With the chart's own timings: no taint before 15 s of heat, none removed before 180 s."""
    # First of all tests, on a board that was not hot in this hour: each return doubles the hold.
    node = cool.boards[1]
    cool.install(quick=False)
    try:
        cool.hold(node, COOL)
        time.sleep(30)
        cool.hold(node, HOT)
        heated = time.monotonic()
        cool.await_hot(node, hot=True, seconds=90)
        tainted = time.monotonic()
        assert tainted - heated >= 14

        cool.hold(node, COOL)
        cool.await_hot(node, hot=False, seconds=330)
        assert time.monotonic() - tainted >= 175
    finally:
        cool.install()


def test_hot_node_is_tainted_and_avoided_until_it_cooled(cool: Platform) -> None:
    """The whole cycle on real load: heat, taint, avoidance, a foreign taint survives, release."""
    node, other = cool.boards
    kube = cool.kube
    cool.release(node)
    with cool.pod(npu_pod("npu-heats", node)):
        cool.await_hot(node, hot=True, seconds=120)
        taint = cool.hot_taint(node)
        assert taint is not None
        assert taint["effect"] == "NoSchedule"
        assert int(taint["value"]) % 5 == 0
        assert cool.overheated(node) == "True"
        kube.kubectl("taint", "node", node, f"{FOREIGN}=yes:PreferNoSchedule")

    # The first Pod has ended; during the hold a Pod that prefers the hot node goes elsewhere.
    with cool.pod(sample_pod(name="npu-prefers", prefers=node)) as pod:
        assert pod["spec"]["nodeName"] == other
        # With the other node full, the next one waits and is told why.
        third = sample_pod(name="npu-waits", prefers=node)
        with cool.pod(third, phase="Pending"):
            message = cool.scheduler_says("npu-waits")
            # Kubernetes before 1.37 names the taint here, newer ones count the nodes.
            assert "untolerated taint" in message
            assert f"Insufficient {RESOURCE}" in message

    _restart_guards(cool)
    assert cool.hot_taint(node) is not None, "a restart of the guard must not untaint"
    cool.hold(node, COOL)
    cool.await_hot(node, hot=False, seconds=120)
    assert FOREIGN in kube.taints(node), "a foreign taint must survive"
    kube.kubectl("taint", "node", node, f"{FOREIGN}-")
    until(
        lambda: cool.overheated(node),
        lambda status: status == "False",
        seconds=30,
        what="condition NPUOverheated False",
    )


def _restart_guards(platform: Platform) -> None:
    selector = f"{COMPONENT}=guard"
    old = {
        p["metadata"]["uid"] for p in platform.kube.items("pods", "-n", NAMESPACE, "-l", selector)
    }
    platform.kube.kubectl("delete", "pods", "-n", NAMESPACE, "-l", selector, "--wait=false")
    until(
        lambda: [
            pod
            for pod in platform.kube.items("pods", "-n", NAMESPACE, "-l", selector)
            if pod["metadata"]["uid"] not in old
            and all(s.get("ready") for s in pod["status"].get("containerStatuses", [{}]))
        ],
        lambda pods: len(pods) == 2,
        seconds=90,
        what="two new guards",
    )


def test_transition_is_told_in_an_event(cool: Platform) -> None:
    """An Event on the Node tells each change of state."""
    node = cool.boards[0]
    cool.hold(node, HOT)
    cool.await_hot(node, hot=True, seconds=60)

    events = until(
        lambda: [
            event
            for event in cool.kube.items("events", "-n", "default")
            if event["involvedObject"]["kind"] == "Node"
            and event["involvedObject"]["name"] == node
            and "npu" in json.dumps(event.get("reportingComponent", "")).lower()
        ],
        seconds=30,
        what=f"an Event on {node}",
    )

    assert any("hot" in event["message"].lower() for event in events)


def test_inventory_is_on_the_labels(platform: Platform) -> None:
    """Affinity can select model, driver, cores and driver version."""
    labels = until(
        lambda: platform.kube.node(platform.boards[0])["metadata"]["labels"],
        lambda seen: "rockchip.com/npu" in seen,
        seconds=60,
        what="inventory labels",
    )

    assert labels["rockchip.com/npu"] == "true"
    assert labels["rockchip.com/npu-model"] == "rk3588"
    assert labels["rockchip.com/npu-cores"] == "3"
    assert labels["rockchip.com/npu-driver"] == "rknpu"
    assert labels["rockchip.com/npu-driver-version"] == "908"
    bare = platform.kube.node(platform.bare)["metadata"]["labels"]
    assert not [name for name in bare if name.startswith("rockchip.com/")]


def test_lost_sensor_is_unknown_and_keeps_the_taint(cool: Platform) -> None:
    """No reading is neither hot nor cool: a hot node stays tainted while its exporter is away."""
    node = cool.boards[0]
    cool.hold(node, HOT)
    cool.await_hot(node, hot=True, seconds=60)
    cool.control(node, frozen=True, celsius=HOT, load=(0.9, 0.9, 0.9))
    time.sleep(2)
    temp = cool.zone(node) / "temp"
    temp.write_bytes(b"")

    until(
        lambda: cool.overheated(node),
        lambda status: status == "Unknown",
        seconds=90,
        what="condition NPUOverheated Unknown",
    )

    assert cool.hot_taint(node) is not None


def test_one_guard_leads(platform: Platform) -> None:
    """Two replicas, one leader, and only the leader shows nodes."""
    pods = platform.kube.items("pods", "-n", NAMESPACE, "-l", f"{COMPONENT}=guard")
    texts = [platform.kube.pod_http(pod, "/metrics") for pod in pods]

    leaders = [text for text in texts if "\nnpu_thermal_guard_leader 1.0" in text]
    assert len(texts) == 2
    assert len(leaders) == 1
    with_nodes = [text for text in texts if "npu_thermal_guard_node_state{" in text]
    assert with_nodes == leaders


def test_observe_mode_writes_nothing(cool: Platform) -> None:
    """In observe mode a hot node keeps its taints, labels and annotations as they are."""
    node = cool.boards[1]
    cool.install("guard.mode=observe")
    try:
        before = _mine(cool.kube.node(node))
        cool.hold(node, HOT)
        time.sleep(20)
        assert _mine(cool.kube.node(node)) == before
        assert cool.hot_taint(node) is None
    finally:
        cool.hold(node, COOL)
        cool.install()


def _mine(node: Json) -> Json:
    annotations = node["metadata"].get("annotations", {})
    return {
        "taints": node["spec"].get("taints", []),
        "labels": node["metadata"]["labels"],
        "annotations": {k: v for k, v in annotations.items() if k.startswith(OWN)},
    }

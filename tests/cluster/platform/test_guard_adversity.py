"""The guard on a real cluster in hard times: rivals, kills, budgets, an API server that hangs."""

import contextlib
import threading
import time
from functools import partial

import pytest

from ci.demo.story import HOT_TAINT, NAMESPACE
from ci.kube import Json, until
from tests.cluster.platform.installed import COMPONENT, COOL, HOT, Platform, npu_pod, without_npu
from tests.cluster.platform.outages import (
    answers,
    leads_no_more,
    patiently,
    rest,
    restarts,
    says,
    silent_api_server,
)
from thermal.errors import ConflictError, UnavailableError
from thermal.kube import Client

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

GUARD = f"{COMPONENT}=guard"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
STORM = "example.com/storm"
FOREIGN = "example.com/maintenance"
EMERGENCY = 102.0
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


def _leader(platform: Platform) -> Json:
    """Return the Pod that holds the Lease."""
    (lease,) = platform.kube.items("leases", "-n", NAMESPACE)
    holder = lease["spec"]["holderIdentity"]
    return platform.kube.get("pod", holder, "-n", NAMESPACE)


def _metric(platform: Platform, pod: Json, series: str) -> float | None:
    for line in platform.kube.pod_http(pod, "/metrics").splitlines():
        if line.startswith(f"{series} "):
            return float(line.rsplit(" ", 1)[1])
    return None


class _Rival(threading.Thread):
    """Another controller that changes its own taint twenty times a second, properly."""

    def __init__(self, platform: Platform, node: str) -> None:
        super().__init__(name="rival", daemon=True)
        self._client = Client.from_kubeconfig(platform.cluster.kubeconfig)
        self._path = f"/api/v1/nodes/{node}"
        self._ended = threading.Event()
        self.written = 0

    def run(self) -> None:
        """Write until :meth:`end`."""
        while not self._ended.wait(0.05):
            with contextlib.suppress(ConflictError, UnavailableError):
                self.write(str(self.written + 1))
                self.written += 1

    def write(self, value: str | None) -> None:
        """Set the taint, or take it away."""
        node = self._client.get(self._path)
        taints = [t for t in node["spec"].get("taints", []) if t["key"] != STORM]
        if value is not None:
            taints.append({"key": STORM, "value": value, "effect": "PreferNoSchedule"})
        version = node["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}
        self._client.patch(self._path, body)

    def end(self) -> None:
        """Stop writing and take the taint away."""
        self._ended.set()
        self.join()
        for _ in range(50):
            with contextlib.suppress(ConflictError):
                self.write(None)
                return


def test_rival_writer_and_guards_killed_in_between(cool: Platform) -> None:
    """20 foreign writes a second, guards ending by SIGKILL: all taints of both come out right."""
    node = cool.boards[0]
    cool.kube.kubectl("taint", "node", node, f"{FOREIGN}=yes:PreferNoSchedule")
    rival = _Rival(cool, node)
    rival.start()
    try:
        for delay in (3.0, 5.0):
            cool.hold(node, HOT)
            time.sleep(delay)  # somewhere between the first warm reading and the taint
            leader = _leader(cool)
            for pid in cool.processes(leader["spec"]["nodeName"], "thermal"):
                cool.cluster.exec(leader["spec"]["nodeName"], ["kill", "-9", pid])
            cool.await_hot(node, hot=True, seconds=90)
            seen = cool.kube.taints(node)
            assert seen[FOREIGN]["value"] == "yes"
            assert STORM in seen
            cool.hold(node, COOL)
            cool.await_hot(node, hot=False, seconds=90)
        rival_wrote = rival.written
        assert rival_wrote > 50
    finally:
        rival.end()
    seen = cool.kube.taints(node)
    assert FOREIGN in seen
    assert HOT_TAINT not in seen
    assert STORM not in seen
    cool.kube.kubectl("taint", "node", node, f"{FOREIGN}-")


def test_successor_of_a_killed_leader_changes_nothing_on_a_hot_node(cool: Platform) -> None:
    """The leader's Pod is gone without a word: nobody ever sees the node without its taint."""
    node = cool.boards[0]
    cool.hold(node, HOT)
    cool.await_hot(node, hot=True, seconds=60)
    client = Client.from_kubeconfig(cool.cluster.kubeconfig)
    version = client.list("/api/v1/nodes").resource_version
    old = _leader(cool)
    name = old["metadata"]["name"]

    cool.kube.kubectl("delete", "pod", name, "-n", NAMESPACE, "--force", "--grace-period=0")
    heir = until(
        lambda: _leader(cool),
        lambda pod: pod["metadata"]["name"] != name,
        seconds=60,
        what="another leader",
    )
    series = f'npu_thermal_guard_node_state{{node="{node}",state="hot"}}'
    until(lambda: _metric(cool, heir, series), seconds=60, what="the heir's judgement of the node")

    watch = client.watch("/api/v1/nodes", version, seconds=2)
    for event in watch.events():
        item = event["object"]
        if event["type"] == "MODIFIED" and item["metadata"]["name"] == node:
            assert HOT_TAINT in [taint["key"] for taint in item["spec"].get("taints", [])]
    assert (
        until(
            lambda: _metric(cool, heir, "npu_thermal_guard_admission_policy_enforced"),
            seconds=60,
            what="the heir's self-test",
        )
        == 1.0
    )


def _disruption_budget(labels: dict[str, str]) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "npu-blocks", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
    }


def test_emergency_respects_disruption_budget_and_other_pods(cool: Platform) -> None:
    """A blocked NPU Pod is asked again until its budget allows; a Pod without NPU never."""
    node, kube = cool.boards[1], cool.kube
    labels = {"app": "npu-guarded"}
    guarded = npu_pod("npu-guarded", node)
    guarded["metadata"]["labels"] = labels
    bystander = without_npu(npu_pod("npu-bystander", node))
    bystander["spec"]["tolerations"] = [{"operator": "Exists"}]
    kube.apply(_disruption_budget(labels))
    with cool.pod(guarded), cool.pod(bystander):
        cool.hold(node, EMERGENCY)
        blocked = 'npu_thermal_guard_evictions_total{outcome="blocked"}'
        until(
            lambda: _metric(cool, _leader(cool), blocked),
            seconds=90,
            what="an eviction that a disruption budget refused",
        )
        held = kube.get("pod", "npu-guarded", "-n", "default")
        assert "deletionTimestamp" not in held["metadata"]

        kube.delete("poddisruptionbudget", "npu-blocks", "-n", "default")
        until(
            lambda: kube.items("pods", "-n", "default", "-l", "app=npu-guarded"),
            lambda pods: all("deletionTimestamp" in pod["metadata"] for pod in pods),
            seconds=60,
            what="the eviction of the Pod",
        )
        stays = kube.get("pod", "npu-bystander", "-n", "default")
        assert stays["status"]["phase"] == "Running"
        assert "deletionTimestamp" not in stays["metadata"]
    assert cool.hot_taint(node) is not None


def test_a_minute_without_answers_from_the_api_server(cool: Platform) -> None:
    """Nobody leads, all live on; a board that heats meanwhile is closed when answers come back."""
    first, second = cool.boards
    cool.hold(first, HOT)
    cool.await_hot(first, hot=True, seconds=60)
    before = cool.hot_taint(first)
    guards = cool.kube.items("pods", "-n", NAMESPACE, "-l", GUARD)
    with silent_api_server(cool.cluster):
        began = time.monotonic()
        cool.hold(second, HOT)
        for pod in guards:
            name = pod["metadata"]["name"]
            patiently(partial(leads_no_more, pod), seconds=40, what=f"{name} leads no more")
        rest(began, 60)
        for pod in guards:
            says(pod, "/healthz")
    until(lambda: answers(cool), seconds=60, what="the API server's answers")

    cool.await_hot(second, hot=True, seconds=90)
    assert cool.hot_taint(first) == before
    after = cool.kube.items("pods", "-n", NAMESPACE, "-l", GUARD)
    assert restarts(after) == restarts(guards)


def test_all_boards_hot_on_nodes_that_are_control_plane_too(cool: Platform) -> None:
    """As k3s servers are: managed while they take Pods; one is closed, the other only avoided."""
    for node in cool.boards:
        cool.kube.kubectl("label", "node", node, f"{CONTROL_PLANE}=true")
    try:
        for node in cool.boards:
            cool.hold(node, HOT)
        for node in cool.boards:
            cool.await_hot(node, hot=True, seconds=90)
        effects = until(
            lambda: sorted(str((cool.hot_taint(node) or {}).get("effect")) for node in cool.boards),
            lambda seen: seen == ["NoSchedule", "PreferNoSchedule"],
            seconds=30,
            what="one closed node of two",
        )
        assert effects
        for node in cool.boards:
            until(
                lambda node=node: cool.overheated(node),  # type: ignore[misc]
                lambda status: status == "True",
                seconds=30,
                what=f"condition of {node}",
            )
            cool.hold(node, COOL)
        for node in cool.boards:
            cool.await_hot(node, hot=False, seconds=90)
    finally:
        for node in cool.boards:
            cool.kube.kubectl("label", "node", node, f"{CONTROL_PLANE}-")

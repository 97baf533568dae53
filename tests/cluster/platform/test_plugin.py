"""A Pod that asks gets the NPU and nothing else does; restarts lose neither Pods nor devices."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from ci.demo.story import NAMESPACE, RESOURCE
from ci.kube import Json, until
from tests.cluster.platform.installed import Platform, events, npu_pod, without_npu

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

DEVICE = "/dev/dri/card1"


@dataclass(frozen=True, slots=True)
class _Report:
    """What a sample Pod saw: its environment, and per device node what happened."""

    environment: dict[str, str]
    devices: dict[str, Json]


def _report(platform: Platform, name: str) -> _Report:
    report = events(platform, name)
    environment = next(e["variables"] for e in report if e["event"] == "environment")
    devices = {e["path"]: e for e in report if e["event"] == "device"}
    return _Report(environment=environment, devices=devices)


def test_nodes_with_a_board_offer_one_and_others_nothing(platform: Platform) -> None:
    """Two boards offer one NPU each; a node without one offers nothing and its Pods are ready."""
    offers = platform.offers()

    assert offers[platform.bare] in (None, "0")
    for component in ("plugin", "exporter", "simulator"):
        pod = platform.component(component, platform.bare)
        ready = {c["type"]: c["status"] for c in pod["status"]["conditions"]}
        assert ready["Ready"] == "True", component


def test_requesting_pod_opens_its_device_and_knows_it(platform: Platform) -> None:
    """The device opens, and the environment names device, ids and a core hint."""
    node = platform.boards[0]
    with platform.pod(npu_pod("npu-asks", node)):
        report = _report(platform, "npu-asks")

    assert report.environment["RKNN_NPU_DEVICE"] == DEVICE
    assert report.environment["NPU_DEVICE_IDS"] == "npu0"
    assert report.environment["NPU_CORE_HINT"] == "0,1,2"
    opened = {path: device["opened"] for path, device in report.devices.items()}
    assert opened == {DEVICE: True, "/dev/dri/renderD129": True}


def test_pod_without_request_sees_no_device(platform: Platform) -> None:
    """Without asking there is neither node nor environment."""
    pod = without_npu(npu_pod("npu-silent", platform.boards[0]))
    with platform.pod(pod):
        report = _report(platform, "npu-silent")

    assert report.devices == {}
    assert report.environment == {}


def test_mounting_the_node_without_asking_gives_eperm(platform: Platform) -> None:
    """The device cgroup, not the path, is what keeps others out."""
    pod = without_npu(npu_pod("npu-thief", platform.boards[0]))
    board = "/var/lib/npu-platform/board/dev/dri"
    pod["spec"]["volumes"] = [{"name": "dri", "hostPath": {"path": board}}]
    container = pod["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "dri", "mountPath": "/dev/dri"}]
    container["env"] = [{"name": "RKNN_NPU_DEVICE", "value": DEVICE}]
    with platform.pod(pod):
        report = _report(platform, "npu-thief")

    assert report.devices[DEVICE]["opened"] is False
    assert report.devices[DEVICE]["errno"] == "EPERM"


def test_second_pod_waits_and_runs_when_the_first_ends(platform: Platform) -> None:
    """One NPU serves one Pod at a time."""
    node = platform.boards[0]
    with (
        platform.pod(npu_pod("npu-first", node)),
        platform.pod(npu_pod("npu-second", node), phase="Pending"),
    ):
        message = platform.scheduler_says("npu-second")
        assert f"Insufficient {RESOURCE}" in message

        platform.kube.delete("pod", "npu-first", "-n", "default", "--grace-period=1")

        platform.await_phase("npu-second", "Running")


@pytest.mark.parametrize("what", ["kubelet", "containerd", "plugin-pod", "plugin-kill"])
def test_restarts_lose_neither_pod_nor_device(
    platform: Platform, what: str, measure: Callable[[str], None]
) -> None:
    """After a restart of a daemon the NPU is offered again and its Pod still runs."""
    node = platform.boards[0]
    with platform.pod(npu_pod("npu-holder", node)) as before:
        registrations = platform.metrics(node, "plugin")[
            "npu_device_plugin_registrations_total"
        ].values()
        start = time.monotonic()
        _restart(platform, node, what)
        if what != "containerd":
            _await_registration(platform, node, fresh=what != "kubelet", than=sum(registrations))
        platform.offers()
        seconds = time.monotonic() - start
        listed = platform.value(node, "npu_device_plugin_registration_seconds_sum", "plugin")
        measure(
            f"{what}: offered by the API {seconds:.1f} s after the restart;"
            f" plugin: {listed:.2f} s from kubelet.sock to the list sent, all registrations so far"
        )
        after = platform.kube.get("pod", "npu-holder", "-n", "default")

    assert after["status"]["phase"] == "Running"
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    restarts = [status["restartCount"] for status in after["status"]["containerStatuses"]]
    assert restarts == [0]
    with platform.pod(npu_pod("npu-later", node)):
        assert _report(platform, "npu-later").environment["NPU_DEVICE_IDS"] == "npu0"


def _restart(platform: Platform, node: str, what: str) -> None:
    if what in ("kubelet", "containerd"):
        platform.cluster.restart(what, node)
        return
    pod = platform.component("plugin", node)
    if what == "plugin-pod":
        name = pod["metadata"]["name"]
        platform.kube.kubectl("delete", "pod", name, "-n", NAMESPACE, "--wait=false")
        until(
            lambda: platform.component("plugin", node)["metadata"]["uid"],
            lambda uid: uid != pod["metadata"]["uid"],
            seconds=60,
            what="a new plugin Pod",
        )
    else:
        platform.cluster.exec(node, ["kill", "-9", *platform.processes(node, "plugin")])


def _await_registration(platform: Platform, node: str, *, fresh: bool, than: float) -> None:
    """Wait until the plugin says it registered again (a new process counts from zero)."""
    least = 1 if fresh else than + 1
    until(
        lambda: sum(
            platform.metrics(node, "plugin")
            .get("npu_device_plugin_registrations_total", {})
            .values()
        ),
        lambda count: count >= least,
        seconds=90,
        what=f"registration of the plugin on {node}",
    )

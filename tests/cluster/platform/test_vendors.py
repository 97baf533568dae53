"""A Rockchip board, one with the mainline driver and an Ascend server side by side."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ci.demo.story import NAMESPACE
from ci.kube import Json, until
from kubectl_npu.__main__ import main as kubectl_npu
from tests.cluster.platform.installed import KubectlOf, Platform, events, npu_pod, without_npu

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

VENDOR = "rockchip.com/npu"
MAINLINE = "rockchip.com/npu-rocket"
ASCEND = "huawei.com/Ascend910"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """The platform with a board of each kind, by node."""

    platform: Platform
    vendor: str
    mainline: str
    ascend: str


@pytest.fixture(scope="module")
def mixed(platform: Platform) -> Iterator[Mixed]:
    """One node of each kind; the boards of all other tests come back at the end."""
    # For five minutes a node keeps the count of a resource it no longer offers, and the guard
    # counts it there: the board whose budget is its own goes where none was before.
    vendor, ascend = platform.boards
    mainline = platform.bare
    platform.install(
        f"simulator.boards.nodes.{mainline}=rk3588-rocket",
        f"simulator.boards.nodes.{ascend}=ascend910b",
    )
    yield Mixed(platform=platform, vendor=vendor, mainline=mainline, ascend=ascend)
    for node in (vendor, mainline, ascend):
        platform.release(node)
    platform.install()
    platform.offers()


def ascend_pod(name: str, node: str, chips: int) -> Json:
    """Return the sample Pod with chips of an Ascend server."""
    pod = npu_pod(name, node)
    pod["spec"]["containers"][0]["resources"] = {"limits": {ASCEND: chips}}
    return pod


def await_offer(platform: Platform, resource: str, node: str, count: str) -> None:
    """Wait until ``node`` offers ``count`` of a resource and no other node offers any."""
    until(
        lambda: platform.kube.allocatable(resource),
        lambda seen: (
            seen[node] == count
            and {offer for name, offer in seen.items() if name != node} <= {None, "0"}
        ),
        seconds=90,
        what=f"{resource}: {count} on {node} and nowhere else",
    )


def test_each_kind_has_its_resource_and_pods_get_their_chips(
    mixed: Mixed, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three resources, the log's lines, two near chips for a Pod, none for others, and the load."""
    platform, node = mixed.platform, mixed.ascend
    for resource, where, count in (
        (VENDOR, mixed.vendor, "1"),
        (MAINLINE, mixed.mainline, "1"),
        (ASCEND, node, "8"),
    ):
        await_offer(platform, resource, where, count)
    plugin = platform.component("plugin", node)["metadata"]["name"]
    log = platform.kube.kubectl("logs", plugin, "-n", NAMESPACE)
    assert "Found device /dev/davinci0" in log
    assert f"Registered resource {ASCEND}" in log

    with platform.pod(ascend_pod("trains", node, 2)):
        report = events(platform, "trains")
        opened = {e["path"]: e["opened"] for e in report if e["event"] == "device"}
        given = next(e["variables"] for e in report if e["event"] == "environment")
        # Chips 0 and 4 of the board are behind one root complex, 0 and 1 are not.
        assert given["NPU_DEVICE_IDS"] == "davinci0,davinci4"
        assert opened == {
            "/dev/davinci0": True,
            "/dev/davinci4": True,
            "/dev/davinci_manager": True,
        }
        with platform.pod(without_npu(npu_pod("asks-for-nothing", node))):
            assert not [e for e in events(platform, "asks-for-nothing") if e["event"] == "device"]
        until(
            lambda: platform.value(node, "npu_core_busy_seconds_total", device="davinci4"),
            lambda seconds: seconds is not None and seconds > 0,
            seconds=30,
            what="load of a chip that is held",
        )
        assert platform.value(node, "npu_core_busy_seconds_total", device="davinci3") == 0

        waiting = ascend_pod("waits", node, 8)
        with platform.pod(waiting, phase="Pending"):
            assert kubectl_npu(["doctor"], KubectlOf(kube=platform.kube)) == 0
    printed = capsys.readouterr().out
    assert "default/trains runs on" in printed
    assert "sees davinci0, davinci4" in printed
    assert "in use" in printed


def test_one_guard_judges_all_and_closes_each_kind_by_its_own_budget(mixed: Mixed) -> None:
    """Hot boards of two resources close both; a hot Ascend server is told and left alone."""
    platform = mixed.platform
    for node in (mixed.vendor, mixed.mainline):
        platform.hold(node, 84.0)
    # One of three nodes may be closed: a budget for all would leave one of them open.
    for node in (mixed.vendor, mixed.mainline):
        platform.await_hot(node, hot=True, seconds=60)
        taint = platform.hot_taint(node)
        assert taint is not None
        assert taint["effect"] == "NoSchedule"
    platform.hold(mixed.ascend, 84.0)
    states = until(
        lambda: _states(platform),
        lambda seen: seen.get(mixed.ascend) == "hot",
        seconds=60,
        what="the guard's judgement of the Ascend server",
    )
    assert states.keys() == {mixed.vendor, mixed.mainline, mixed.ascend}
    assert platform.value(mixed.ascend, "npu_temperature_celsius", device="davinci7") == 84
    assert platform.hot_taint(mixed.ascend) is None
    for node in (mixed.vendor, mixed.mainline):
        platform.hold(node, 45.0, (0.0,))
        platform.await_hot(node, hot=False, seconds=90)


def _states(platform: Platform) -> dict[str, str]:
    """Return the state of each node in the words of the replica that leads."""
    found: dict[str, str] = {}
    selector = "app.kubernetes.io/component=guard"
    for pod in platform.kube.items("pods", "-n", NAMESPACE, "-l", selector):
        page = platform.kube.pod_http(pod, "/metrics")
        for line in page.splitlines():
            if line.startswith("npu_thermal_guard_node_state{") and line.endswith(" 1.0"):
                pairs = line.partition("{")[2].partition("}")[0].split(",")
                labels = dict(pair.split("=", 1) for pair in pairs)
                found[labels["node"].strip('"')] = labels["state"].strip('"')
    return found

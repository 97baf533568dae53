"""Profiles and slots on a real kubelet: as many Pods as slots, heat, changes under a holder."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import pytest

from ci.demo.story import RESOURCE
from ci.kube import Json, until
from tests.cluster.platform.installed import Platform, npu_pod, why_pending

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PROFILE: Final = "npu-platform.io/profile"
COOL: Final = 45.0
HOT: Final = 83.0
NAMES: Final = ("slot-a", "slot-b", "slot-c")


def _label(platform: Platform, node: str, profile: str | None) -> None:
    value = f"{PROFILE}-" if profile is None else f"{PROFILE}={profile}"
    platform.kube.kubectl("label", "node", node, value, "--overwrite")


@pytest.fixture(scope="module")
def shared(platform: Platform) -> Iterator[str]:
    """A node with a slot per core by its profile's label; the others stay whole."""
    node = platform.boards[0]
    for board in platform.boards:
        platform.hold(board, COOL, (0.0, 0.0, 0.0))
    platform.install(
        "plugin.profiles.cores.sharing.slots=cores",
        "plugin.profiles.cores.heat.lowerEverySeconds=2",
        "plugin.profiles.cores.heat.raiseEverySeconds=2",
        "plugin.profiles.cores.heat.clampFrequency=true",
        "plugin.profiles.cores.health.openDevice=true",
    )
    _label(platform, node, "cores")
    _offered(platform, node, "3")
    yield node
    _label(platform, node, None)
    for board in platform.boards:
        platform.release(board)
    platform.install()
    platform.offers_whole()


def _offered(platform: Platform, node: str, expected: str, *, seconds: float = 90) -> None:
    until(
        lambda: platform.kube.allocatable(RESOURCE)[node],
        lambda seen: seen == expected,
        seconds=seconds,
        what=f"{expected} {RESOURCE} on {node}",
    )


def _allocations(platform: Platform, node: str) -> Json:
    """Return what the plugin says of itself, asked on the node, without the API server."""
    address = platform.component("plugin", node)["status"]["podIP"]
    return lambda: json.loads(
        platform.cluster.exec(
            node, ["curl", "-sS", "--max-time", "5", f"http://{address}:8080/allocations"]
        ).stdout
    )


def _environment(platform: Platform, name: str) -> dict[str, str]:
    line = until(
        lambda: next(
            (
                line
                for line in platform.kube.kubectl("logs", name, "-n", "default").splitlines()
                if line.startswith("{") and json.loads(line)["event"] == "environment"
            ),
            None,
        ),
        seconds=20,
        what=f"environment of {name}",
    )
    assert line is not None
    variables: dict[str, str] = json.loads(line)["variables"]
    return variables


@contextmanager
def _cut_off(platform: Platform, node: str) -> Iterator[None]:
    """Keep a node from reaching any other: no API server, no guard, no Prometheus."""
    routes = platform.cluster.exec(node, ["ip", "-4", "route", "show"]).stdout.splitlines()
    lan = next(line.split()[0] for line in routes if "proto kernel scope link src" in line)
    server = lan.rpartition(".")[0] + ".1/32"
    platform.cluster.exec(node, ["ip", "route", "add", "blackhole", server])
    try:
        yield
    finally:
        platform.cluster.exec(node, ["ip", "route", "del", "blackhole", server])


def test_as_many_pods_as_slots_each_with_its_own(platform: Platform, shared: str) -> None:
    """Three run, with three identifiers and hints; the fourth waits; another node stays whole.

    The plugin of this node may open devices, and finds that they do.
    """
    _offered(platform, shared, "3")
    _offered(platform, platform.boards[1], "1")
    opened = {"device": "npu0", "reason": "ok"}
    assert platform.value(shared, "npu_device_plugin_device_health", "plugin", **opened) == 1
    with ExitStack() as pods:
        for name in NAMES:
            pods.enter_context(platform.pod(npu_pod(name, shared)))
        given = [_environment(platform, name) for name in NAMES]
        assert {one["NPU_DEVICE_IDS"] for one in given} == {"npu0-s0", "npu0-s1", "npu0-s2"}
        assert {one["NPU_CORE_HINT"] for one in given} == {"0", "1", "2"}

        with platform.pod(npu_pod("slot-d", shared), phase="Pending"):
            message = platform.scheduler_says("slot-d")
            assert f"Insufficient {RESOURCE}" in message


def test_free_slots_are_withdrawn_at_heat_without_the_control_plane(
    platform: Platform, shared: str
) -> None:
    """The node alone lowers its offer and its clock, its holder goes on; all comes back later."""
    _offered(platform, shared, "3")
    clock = next(platform.cluster.node_board(shared).glob("sys/class/devfreq/*/max_freq"))
    full = int(clock.read_text())
    asked = _allocations(platform, shared)
    with platform.pod(npu_pod("slot-holder", shared)) as before:
        held = _environment(platform, "slot-holder")["NPU_DEVICE_IDS"]
        until(
            lambda: [d["id"] for d in asked()["devices"] if d["holder"] is not None],
            lambda seen: seen == [held],
            seconds=30,
            what="holder in /allocations",
        )
        with _cut_off(platform, shared):
            platform.hold(shared, HOT)
            withdrawn = until(
                lambda: {
                    device["id"]: device["reason"]
                    for device in asked()["devices"]
                    if device["state"] == "withdrawn"
                },
                lambda seen: len(seen) == 2 and set(seen.values()) == {"heat_hot"},
                # Slots of Pods that ended before the plugin saw them count as held for a minute.
                seconds=120,
                what="free slots withdrawn at hot",
            )
            assert held not in withdrawn
            until(
                lambda: int(clock.read_text()),
                lambda seen: seen == full * 6 // 10,
                seconds=20,
                what="clock limit of the hot board",
            )
        _offered(platform, shared, "1")
        platform.hold(shared, COOL, (0.0, 0.0, 0.0))
        _offered(platform, shared, "3", seconds=120)
        # Slots come back while it recovers, the clock when it has.
        until(
            lambda: int(clock.read_text()),
            lambda seen: seen == full,
            seconds=60,
            what="clock limit as it was",
        )
        after = platform.kube.get("pod", "slot-holder", "-n", "default")

    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["phase"] == "Running"
    platform.await_hot(shared, hot=False, seconds=90)


def test_slots_to_whole_under_a_holder_and_a_kubelet_restart(
    platform: Platform, shared: str
) -> None:
    """The holder keeps its slot, nobody gets the NPU beside it, and then it is whole."""
    _offered(platform, shared, "3")
    with ExitStack() as after_all, platform.pod(npu_pod("slot-old", shared)) as before:
        after_all.callback(_label, platform, shared, "cores")
        held = _environment(platform, "slot-old")["NPU_DEVICE_IDS"]
        _label(platform, shared, None)
        _offered(platform, shared, "1")
        asked = _allocations(platform, shared)
        until(
            lambda: {device["id"]: device["state"] for device in asked()["devices"]},
            lambda seen: seen == {held: "healthy", "npu0": "withdrawn"},
            seconds=60,
            what="the old slot beside the waiting whole device",
        )
        platform.cluster.restart("kubelet", shared)
        _offered(platform, shared, "1")
        with platform.pod(npu_pod("slot-new", shared), phase="Pending"):
            until(
                lambda: why_pending(platform.kube.get("pod", "slot-new", "-n", "default")),
                lambda seen: f"Insufficient {RESOURCE}" in seen,
                seconds=30,
                what="verdict of the scheduler",
            )
            after = platform.kube.get("pod", "slot-old", "-n", "default")
            assert after["status"]["phase"] == "Running"
            assert after["metadata"]["uid"] == before["metadata"]["uid"]

            platform.kube.delete("pod", "slot-old", "-n", "default", "--grace-period=1")

            platform.await_phase("slot-new", "Running")
            # A Pod that waited may be quicker than the plugin, which sees the end within seconds:
            # it gets the identifier that has just become free, and the NPU waits for it in turn.
            assert _environment(platform, "slot-new")["NPU_DEVICE_IDS"] in ("npu0", held)
        until(
            lambda: {device["id"]: device["state"] for device in asked()["devices"]},
            lambda seen: seen == {"npu0": "healthy"},
            # A Pod too short for the plugin to see it in the kubelet's list counts for a minute.
            seconds=100,
            what="the NPU as one device",
        )
        with platform.pod(npu_pod("slot-whole", shared)):
            assert _environment(platform, "slot-whole")["NPU_DEVICE_IDS"] == "npu0"

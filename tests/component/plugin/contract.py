"""What a kubelet and the plugin owe each other: one suite for the fake kubelet and for real ones.

A test file imports the functions and gives them a ``rig``. What the kubelet believes is asked
through its PodResources API, which names the identifiers it would hand out.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ci.patience import patient
from kubelet.paths import is_own_socket_name, pod_resources_socket
from kubelet.podresources import PodResourcesClient, PodResourcesError
from tests.component.plugin.plugin_process import RESOURCE, PluginProcess

NPU = frozenset({"npu0"})
NOTHING: frozenset[str] = frozenset()
RESTARTS = 50
_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Environment (what begins with ``NPU_`` or ``RKNN_``) and device nodes of a container."""

    environment: Mapping[str, str]
    nodes: frozenset[str]


class Rig(Protocol):
    """A kubelet with its directory and a board; the plugin is a process on this machine."""

    board: Path

    @property
    def kubelet_dir(self) -> Path:
        """The kubelet's directory as this machine sees it."""
        ...

    def start_plugin(self) -> PluginProcess:
        """Start a plugin; the rig ends it after the test."""
        ...

    def restart_kubelet(self) -> None:
        """Restart the kubelet; returns when it serves."""
        ...

    def power_cycle(self) -> None:
        """End the kubelet and all containers, and start the kubelet; plugins have ended before."""
        ...

    def run_pod(self, name: str) -> None:
        """Start a Pod that asks for one NPU; returns when it runs."""
        ...

    def given(self, name: str) -> Given:
        """Return what the container of a Pod was given."""
        ...

    def restart_container(self, name: str) -> None:
        """Kill the container of a Pod; returns when it runs again."""
        ...

    def await_refusal(self, name: str) -> str:
        """Wait until the kubelet has refused to take back a Pod, and return its words."""
        ...


def allocatable(rig: Rig) -> frozenset[str]:
    """Return the identifiers that the kubelet would hand out."""
    client = PodResourcesClient(pod_resources_socket(rig.kubelet_dir))
    try:
        return frozenset(client.allocatable(timeout_seconds=5).get(RESOURCE, ()))
    except PodResourcesError:
        return NOTHING


def held(rig: Rig) -> dict[str, tuple[str, ...]]:
    """Return the identifiers that Pods hold, by Pod."""
    client = PodResourcesClient(pod_resources_socket(rig.kubelet_dir))
    entries = client.list(timeout_seconds=5)
    return {entry.pod: entry.device_ids for entry in entries if entry.resource == RESOURCE}


def holds(rig: Rig, pod: str) -> None:
    """Wait until the kubelet tells that this Pod alone holds the NPU.

    A kubelet that has just started tells of no Pod, until it has heard of them from the API server.
    """
    wait(lambda: held(rig) == {pod: ("npu0",)}, f"{pod} holds the NPU")


def own_sockets(rig: Rig) -> list[str]:
    """Return the plugin's sockets in the kubelet's directory."""
    names = (path.name for path in (rig.kubelet_dir / "device-plugins").iterdir())
    return sorted(name for name in names if is_own_socket_name(name))


def wait(condition: Callable[[], bool], what: str) -> None:
    """Wait until ``condition`` holds."""
    deadline = time.monotonic() + patient(_SECONDS)
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not in time"
        time.sleep(0.05)


def offered(rig: Rig) -> None:
    """Wait until the kubelet would hand out the NPU."""
    wait(lambda: allocatable(rig) == NPU, "NPU offered")


def withdrawn(rig: Rig) -> None:
    """Wait until the kubelet would hand out nothing."""
    wait(lambda: allocatable(rig) == NOTHING, "NPU withdrawn")


def test_offer_lasts_as_long_as_the_plugin(rig: Rig) -> None:
    """The kubelet hands the NPU out while the plugin runs; a stop takes it back."""
    plugin = rig.start_plugin()
    offered(rig)
    wait(plugin.ready, "plugin ready")
    assert len(own_sockets(rig)) == 1

    assert plugin.end() == 0

    withdrawn(rig)
    assert own_sockets(rig) == []


def test_restarted_kubelet_knows_the_device_again(rig: Rig) -> None:
    """Each kubelet gets a registration on a socket of a new name, the old ones are gone."""
    rig.start_plugin()
    offered(rig)
    (first,) = own_sockets(rig)

    rig.restart_kubelet()

    offered(rig)
    (second,) = own_sockets(rig)
    assert second != first


def test_removed_socket_is_replaced(rig: Rig) -> None:
    """A plugin whose socket was removed cannot be reached and comes back under a new name."""
    rig.start_plugin()
    offered(rig)
    (first,) = own_sockets(rig)

    (rig.kubelet_dir / "device-plugins" / first).unlink()

    wait(lambda: own_sockets(rig) not in ([], [first]), "new socket")
    offered(rig)


def test_lost_device_is_not_handed_out_until_it_is_back(rig: Rig) -> None:
    """A device node that vanishes takes the NPU away, and its return brings it back."""
    rig.start_plugin()
    offered(rig)
    node = rig.board / "dev/dri/card1"

    node.rename(rig.board / "dev/dri/away")
    try:
        withdrawn(rig)
    finally:
        (rig.board / "dev/dri/away").rename(node)

    offered(rig)


def test_running_pod_keeps_its_device_through_all_restarts(rig: Rig) -> None:
    """Plugin, kubelet and container may start again: the Pod keeps the NPU and its first answer.

    The container that starts while there is no plugin shows that the kubelet does not ask again.
    """
    plugin = rig.start_plugin()
    offered(rig)
    rig.run_pod("holder")
    first = rig.given("holder")
    assert first.environment["NPU_DEVICE_IDS"] == "npu0"
    assert first.nodes == {"/dev/dri/card1", "/dev/dri/renderD129"}
    holds(rig, "holder")

    rig.restart_kubelet()
    offered(rig)
    holds(rig, "holder")
    plugin.end(9)
    withdrawn(rig)
    rig.restart_container("holder")

    assert rig.given("holder") == first
    rig.start_plugin()
    offered(rig)
    holds(rig, "holder")
    assert rig.given("holder") == first


def test_pod_is_not_taken_back_before_its_plugin(rig: Rig) -> None:
    """After a power cycle the kubelet refuses a Pod whose plugin is not there yet, for good.

    The NPU is free again, and another Pod gets it as soon as the plugin is back.
    """
    plugin = rig.start_plugin()
    offered(rig)
    rig.run_pod("before")
    plugin.end()
    withdrawn(rig)

    rig.power_cycle()

    assert "no healthy devices present" in rig.await_refusal("before")
    rig.start_plugin()
    offered(rig)
    rig.run_pod("after")
    holds(rig, "after")


def test_no_restart_of_the_plugin_loses_its_registration(rig: Rig) -> None:
    """Fifty times in a row, killed or stopped in order: the successor is known to the kubelet."""
    names = set()

    for number in range(RESTARTS):
        plugin = rig.start_plugin()
        wait(lambda: plugin.logged("The kubelet knows the devices"), f"registration {number}")  # noqa: B023
        offered(rig)
        names.update(own_sockets(rig))
        plugin.end(9 if number % 2 else 15)

    assert len(names) == RESTARTS

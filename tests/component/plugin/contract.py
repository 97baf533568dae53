"""What a kubelet and the plugin owe each other: one suite for the fake kubelet and for real ones.

A test file imports the functions and gives them a ``rig``. What the kubelet believes is asked
through its PodResources API, which names the identifiers it would hand out.
"""

import time
from collections.abc import Callable
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


def allocatable(rig: Rig) -> frozenset[str]:
    """Return the identifiers that the kubelet would hand out."""
    client = PodResourcesClient(pod_resources_socket(rig.kubelet_dir))
    try:
        return frozenset(client.allocatable(timeout_seconds=5).get(RESOURCE, ()))
    except PodResourcesError:
        return NOTHING


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

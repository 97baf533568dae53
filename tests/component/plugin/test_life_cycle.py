"""The plugin's whole life with a kubelet: registration, allocation, restarts, faults, end."""

import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from kubelet._proto import deviceplugin_v1beta1_pb2 as messages
from kubelet.paths import is_own_socket_name
from tests.component.fake_kubelet import AUTHORITIES, FakeKubelet
from tests.component.plugin.plugin_process import RESOURCE, PluginProcess

Start = Callable[..., PluginProcess]
HEALTHY = {"npu0": "Healthy"}
UNHEALTHY = {"npu0": "Unhealthy"}


def own_sockets(kubelet: FakeKubelet) -> list[str]:
    return sorted(p.name for p in kubelet.plugins.iterdir() if is_own_socket_name(p.name))


@pytest.mark.parametrize("authority", AUTHORITIES)
def test_kubelet_learns_the_npu_and_allocates_it(
    kubelet: FakeKubelet, start: Start, board: Path, authority: str
) -> None:
    """Registered, listed, allocated, ready, whatever authority the kubelet's client sends."""
    kubelet.authority = authority
    kubelet.start()

    plugin = start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)
    response = kubelet.allocate(RESOURCE, "npu0")

    assert {
        ("/dev/dri/card1", f"{board}/dev/dri/by-path/platform-fdab0000.npu-card", "rw"),
        ("/dev/dri/renderD129", f"{board}/dev/dri/by-path/platform-fdab0000.npu-render", "rw"),
    } == {(d.container_path, d.host_path, d.permissions) for d in response.devices}
    assert dict(response.envs) == {
        "RKNN_NPU_DEVICE": "/dev/dri/card1",
        "NPU_DEVICE_IDS": "npu0",
        "NPU_CORE_HINT": "0,1,2",
        "NPU_LIBRARY_DIR": "/opt/npu/lib",
    }
    (library,) = response.mounts
    assert library.host_path == f"{board}/usr/lib/librknnrt.so"
    assert library.container_path == "/opt/npu/lib/librknnrt.so"
    assert library.read_only
    plugin.wait(plugin.ready)
    assert plugin.logged("Found device npu0")
    assert plugin.logged(f"Registered resource {RESOURCE}")
    # Memory of a board is for models: neither OpenSSL nor asyncio was loaded on the way.
    maps = Path(f"/proc/{plugin.process.pid}/maps").read_text()
    assert [name for name in ("libcrypto", "/_ssl.", "/_asyncio.") if name in maps] == []


def test_options_are_consistent(kubelet: FakeKubelet, start: Start) -> None:
    """Neither preferred allocation nor PreStartContainer is asked for."""
    kubelet.start()

    start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)

    assert kubelet.endpoint(RESOURCE).options == messages.DevicePluginOptions()


def test_topology_is_not_set(kubelet: FakeKubelet, start: Start) -> None:
    """An empty topology would hide the device from PodResources, so there is none."""
    kubelet.start()
    start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)

    first = next(iter(kubelet.endpoint(RESOURCE).stub.ListAndWatch(messages.Empty(), timeout=5)))

    assert not first.devices[0].HasField("topology")


def test_unknown_device_is_refused_with_advice(kubelet: FakeKubelet, start: Start) -> None:
    """The text in the Pod's status says what the node has and what to do."""
    kubelet.start()
    plugin = start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)

    with pytest.raises(grpc.RpcError) as refusal:
        kubelet.allocate(RESOURCE, "npu7")

    assert "'npu7' is not an NPU of this node" in str(refusal.value)
    assert "npu0" in str(refusal.value)
    assert plugin.metric('npu_device_plugin_errors_total{reason="unknown_device"}') == 1


def test_restarted_kubelet_gets_a_new_registration(kubelet: FakeKubelet, start: Start) -> None:
    """A restart is noticed although the inode number may be the same; the socket name is new."""
    kubelet.start()
    plugin = start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)
    first = kubelet.endpoint(RESOURCE).socket_name

    kubelet.restart()
    kubelet.wait(lambda: len(kubelet.registrations) == 2)
    kubelet.wait_for_devices(RESOURCE, HEALTHY)

    second = kubelet.endpoint(RESOURCE).socket_name
    assert second != first
    assert own_sockets(kubelet) == [second]
    assert kubelet.allocate(RESOURCE, "npu0").envs["NPU_DEVICE_IDS"] == "npu0"
    assert plugin.metric("npu_device_plugin_kubelet_restarts_total") == 1
    assert plugin.metric(f'npu_device_plugin_registrations_total{{resource="{RESOURCE}"}}') == 2


def test_killed_kubelet_is_awaited(kubelet: FakeKubelet, start: Start) -> None:
    """A kubelet socket that nobody serves is retried; the next kubelet is taken at once."""
    kubelet.start()
    plugin = start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)

    kubelet.stop(leave_sockets=True)
    plugin.wait(lambda: plugin.logged("Cannot register"))
    assert not plugin.ready()
    kubelet.start()

    kubelet.wait_for_devices(RESOURCE, HEALTHY)
    plugin.wait(plugin.ready)


def test_vanished_own_socket_is_replaced(kubelet: FakeKubelet, start: Start) -> None:
    """Without its socket a plugin cannot be reached, although its process is well."""
    kubelet.start()
    plugin = start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)
    first = kubelet.endpoint(RESOURCE).socket_name

    (kubelet.plugins / first).unlink()

    kubelet.wait(lambda: len(kubelet.registrations) == 2)
    kubelet.wait_for_devices(RESOURCE, HEALTHY)
    assert first not in own_sockets(kubelet)
    reason = 'npu_device_plugin_errors_total{reason="own_socket_vanished"}'
    assert plugin.metric(reason) == 1


def test_kubelet_that_never_watches_is_asked_again_on_a_new_socket(
    kubelet: FakeKubelet, start: Start
) -> None:
    """Registered without a stream means capacity 0 for ever, so the plugin starts over."""
    kubelet.opens_streams = False
    kubelet.start()
    plugin = start()
    kubelet.wait(lambda: len(kubelet.registrations) == 1)
    assert not plugin.ready()

    kubelet.wait(lambda: len(kubelet.registrations) >= 2)
    kubelet.opens_streams = True
    kubelet.wait_for_devices(RESOURCE, HEALTHY)

    names = [endpoint.socket_name for endpoint in kubelet.registrations]
    assert len(names) == len(set(names))
    assert (plugin.metric('npu_device_plugin_errors_total{reason="no_stream"}') or 0) >= 1
    plugin.wait(plugin.ready)


def test_lost_race_of_an_old_kubelet_is_mended(kubelet: FakeKubelet, start: Start) -> None:
    """Kubelets before 1.37 may take the successor for the plugin that went: it registers again."""
    kubelet.start()
    plugin = start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)
    kubelet.races = True

    kubelet.close_streams()
    kubelet.wait(lambda: len(kubelet.registrations) == 2)
    kubelet.wait_for_devices(RESOURCE, UNHEALTHY)

    kubelet.wait(lambda: len(kubelet.registrations) == 3)
    kubelet.wait_for_devices(RESOURCE, HEALTHY)
    plugin.wait(plugin.ready)


def test_closed_stream_leads_to_a_new_registration(kubelet: FakeKubelet, start: Start) -> None:
    """A kubelet that dropped the stream has all devices unhealthy until somebody registers."""
    kubelet.start()
    start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)

    kubelet.close_streams()

    kubelet.wait(lambda: len(kubelet.registrations) == 2)
    kubelet.wait_for_devices(RESOURCE, HEALTHY)


def test_refused_registration_is_retried(kubelet: FakeKubelet, start: Start) -> None:
    """Back-off has no end, and readiness quotes the kubelet."""
    kubelet.refuses_registration = "the ResourceName is invalid"
    kubelet.start()
    plugin = start()
    plugin.wait(lambda: plugin.logged("Cannot register"))

    status, text = plugin.get("/readyz")
    kubelet.refuses_registration = None

    assert status == 503
    assert "the ResourceName is invalid" in text
    kubelet.wait_for_devices(RESOURCE, HEALTHY, seconds=30)


def test_stop_removes_the_own_socket(kubelet: FakeKubelet, start: Start) -> None:
    """SIGTERM ends the process with 0 and leaves nothing of it behind."""
    kubelet.start()
    plugin = start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)

    code = plugin.end(signal.SIGTERM)

    assert code == 0
    assert own_sockets(kubelet) == []
    assert (kubelet.plugins / "kubelet.sock").exists()
    kubelet.wait_for_devices(RESOURCE, UNHEALTHY)


def test_socket_of_a_killed_plugin_is_cleaned_up(kubelet: FakeKubelet, start: Start) -> None:
    """The next start removes what a kill left, and only sockets of our name nobody serves."""
    kubelet.start()
    plugin = start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)
    stale = kubelet.endpoint(RESOURCE).socket_name
    foreign = kubelet.plugins / "other.sock"
    served = kubelet.plugins / "npu-00000000.sock"
    with socket.socket(socket.AF_UNIX) as dead, socket.socket(socket.AF_UNIX) as alive:
        dead.bind(str(foreign))
        alive.bind(str(served))
        alive.listen(1)
        plugin.end(signal.SIGKILL)
        assert stale in own_sockets(kubelet)

        start()
        kubelet.wait(lambda: len(kubelet.registrations) == 2)
        kubelet.wait_for_devices(RESOURCE, HEALTHY)

        assert sorted([served.name, kubelet.endpoint(RESOURCE).socket_name]) == own_sockets(kubelet)
        assert foreign.exists()


def test_many_streams_leave_workers_for_allocate(kubelet: FakeKubelet, start: Start) -> None:
    """Twenty streams, closed or left open, take no worker away from Allocate."""
    kubelet.start()
    start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)
    stub = kubelet.endpoint(RESOURCE).stub

    for number in range(20):
        stream = stub.ListAndWatch(messages.Empty())
        assert next(stream).devices[0].ID == "npu0"
        if number % 2:
            stream.cancel()

    for _ in range(5):
        assert kubelet.allocate(RESOURCE, "npu0", timeout_seconds=2).envs


def test_kubelet_directory_may_appear_late(kubelet: FakeKubelet, start: Start, place: Path) -> None:
    """Without the directory: alive, not ready, and a text that names path and chart value."""
    plugin = start()
    plugin.wait(lambda: plugin.logged("Cannot reach the kubelet"))

    status, text = plugin.get("/readyz")
    assert status == 503
    assert str(place / "kubelet/device-plugins") in text
    assert "kubeletDir" in text
    assert plugin.get("/healthz")[0] == 200

    kubelet.start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)
    plugin.wait(plugin.ready)


def test_node_without_npu_is_idle_and_ready(
    kubelet: FakeKubelet, start: Start, place: Path
) -> None:
    """No registration, no error, and a device that comes later is taken up."""
    kubelet.start()
    empty = place / "empty"
    empty.mkdir()
    plugin = start(f"--root={empty}", f"--node-prefix={empty}")
    plugin.wait(plugin.ready)

    assert kubelet.registrations == []
    assert plugin.logged("No NPU on this node")

    (place / "board").rename(place / "empty" / "late")
    for child in (empty / "late").iterdir():
        child.rename(empty / child.name)
    kubelet.wait_for_devices(RESOURCE, HEALTHY)


def test_unbound_driver_makes_the_device_unhealthy(
    kubelet: FakeKubelet, start: Start, board: Path
) -> None:
    """Unloading the driver is told by its reason, not as a device that went away."""
    kubelet.start()
    plugin = start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)

    device = board / "sys/devices/platform/fdab0000.npu"
    uevent = (device / "uevent").read_text()
    (device / "uevent").write_text(uevent.replace("DRIVER=RKNPU\n", ""))
    (device / "driver").unlink(missing_ok=True)
    shutil.rmtree(board / "sys/bus/platform/drivers/RKNPU")
    (board / "sys/class/drm/card1").unlink()
    (board / "sys/class/drm/renderD129").unlink()

    kubelet.wait_for_devices(RESOURCE, UNHEALTHY)
    plugin.wait(lambda: '"driver_not_bound"' in plugin.get("/allocations")[1])


def test_lost_device_stays_listed_and_recovers(
    kubelet: FakeKubelet, start: Start, board: Path
) -> None:
    """A device that vanished would look healthy in Pod status, so it is listed unhealthy."""
    kubelet.start()
    plugin = start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)
    node = board / "dev/dri/card1"

    node.rename(board / "dev/dri/away")
    kubelet.wait_for_devices(RESOURCE, UNHEALTHY)
    with pytest.raises(grpc.RpcError, match="npu0 cannot be used"):
        kubelet.allocate(RESOURCE, "npu0")
    assert (
        plugin.metric(f'npu_device_plugin_devices{{health="unhealthy",resource="{RESOURCE}"}}') == 1
    )
    assert plugin.ready()

    (board / "dev/dri/away").rename(node)
    kubelet.wait_for_devices(RESOURCE, HEALTHY)
    assert kubelet.allocate(RESOURCE, "npu0").devices

"""The fake kubelet: its sockets, its plugins and its Pods.

A start deletes every socket in the directory; Register dials the plugin, asks for its options and
only then answers; ListAndWatch is opened afterwards; the end of a stream makes all devices of the
resource unhealthy.
"""

import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote

import grpc

from kubelet._proto import deviceplugin_v1beta1_pb2 as device_plugin
from kubelet._proto.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginStub,
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)
from tests.component.fake_kubelet.pod_resources import Held, PodResources
from tests.component.fake_kubelet.pods import Pods

#: What kubelets have sent as ``:authority``, from the socket's path.
AUTHORITIES: Final[Mapping[str, Callable[[Path], str]]] = {
    "since 1.26": lambda _socket: "localhost",
    "path": str,
    "escaped path": lambda socket: quote(str(socket), safe=""),
    "none": lambda _socket: "",
}
_DIAL_SECONDS = 10.0
_VERSION = "v1beta1"


@dataclass(slots=True)
class Endpoint:
    """A registered plugin; ``lists`` are all device lists it sent, newest last."""

    resource: str
    socket_name: str
    options: device_plugin.DevicePluginOptions
    channel: grpc.Channel
    lists: list[dict[str, str]] = field(default_factory=list)
    watching: bool = False
    stream: grpc.Call | None = None

    @property
    def stub(self) -> DevicePluginStub:
        """The plugin's service."""
        return DevicePluginStub(self.channel)


class FakeKubelet:
    """Serves ``kubelet.sock`` in ``device-plugins`` and in ``pod-resources`` below ``directory``.

    What a test sets: ``authority`` is a key of :data:`AUTHORITIES`. With ``opens_streams`` False
    plugins are lost right after registration. With ``races`` the clean-up after the next
    stream that ends comes late and hits the successor, as it may in kubelets before 1.37
    (kubernetes/kubernetes#121994). ``refuses_registration`` is the text of a refusal.
    ``held`` are devices of Pods without a history; ``pods`` have one. ``lister`` is the API
    PodResources.
    """

    def __init__(self, directory: Path) -> None:
        self.plugins = directory / "device-plugins"
        self.pod_resources = directory / "pod-resources"
        self.authority = "since 1.26"
        self.opens_streams = True
        self.races = False
        self.refuses_registration: str | None = None
        self.held: tuple[Held, ...] = ()
        self.registrations: list[Endpoint] = []
        self.pods = Pods(self)
        self.lister = PodResources(lambda: (*self.held, *self.pods.held()), self._allocatable)
        self._changed = threading.Condition()
        self._servers: list[grpc.Server] = []

    # What a test asks.

    def endpoint(self, resource: str) -> Endpoint:
        """Return the newest registration of a resource."""
        return next(e for e in reversed(self.registrations) if e.resource == resource)

    def devices(self, resource: str) -> dict[str, str]:
        """Return the health by identifier as the kubelet would use it now."""
        found = [e for e in self.registrations if e.resource == resource]
        if not found or not found[-1].lists:
            return {}
        newest = found[-1]
        if newest.watching:
            return dict(newest.lists[-1])
        return dict.fromkeys(newest.lists[-1], "Unhealthy")

    def wait(self, condition: Callable[[], bool], *, seconds: float = 15.0) -> None:
        """Wait until ``condition`` holds; raises TimeoutError."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"not within {seconds} s; have {self.registrations}")
                self._changed.wait(min(left, 0.05))

    def wait_for_devices(
        self, resource: str, expected: dict[str, str], *, seconds: float = 15.0
    ) -> None:
        """Wait until the kubelet sees exactly ``expected``."""
        self.wait(lambda: self.devices(resource) == expected, seconds=seconds)

    def allocate(
        self, resource: str, *ids: str, timeout_seconds: float = 5.0
    ) -> device_plugin.ContainerAllocateResponse:
        """Allocate for one container; raises grpc.RpcError as the plugin refuses."""
        request = device_plugin.AllocateRequest(
            container_requests=[device_plugin.ContainerAllocateRequest(devices_ids=ids)]
        )
        response: device_plugin.AllocateResponse = self.endpoint(resource).stub.Allocate(
            request, timeout=timeout_seconds
        )
        (container,) = response.container_responses
        return container

    # What a test does.

    def start(self) -> None:
        """Start as a kubelet does: sockets are deleted, other files stay."""
        for directory in (self.plugins, self.pod_resources):
            directory.mkdir(parents=True, exist_ok=True)
        for path in self.plugins.iterdir():
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()
        (self.plugins / "DEPRECATION").write_text("not a socket\n")
        self.pods.read_checkpoint()
        registration = grpc.server(ThreadPoolExecutor(8))
        add_RegistrationServicer_to_server(_Registration(self), registration)
        registration.add_insecure_port(f"unix:{self.plugins / 'kubelet.sock'}")
        lister = self.lister.server(self.pod_resources / "kubelet.sock")
        self._servers = [registration, lister]
        for server in self._servers:
            server.start()

    def stop(self, *, leave_sockets: bool = False) -> None:
        """Stop; a kubelet that was killed leaves its sockets behind, served by nobody."""
        for endpoint in self.registrations:
            endpoint.channel.close()
        for server in self._servers:
            server.stop(0).wait(5)
        self._servers = []
        if leave_sockets:
            for directory in (self.plugins, self.pod_resources):
                with socket.socket(socket.AF_UNIX) as dead:
                    dead.bind(str(directory / "kubelet.sock"))

    def restart(self) -> None:
        """Restart; nothing registered survives, and Pods keep what the checkpoint says."""
        self.stop()
        self.start()

    def close_streams(self) -> None:
        """Drop the connections to all plugins and keep running."""
        for endpoint in self.registrations:
            if endpoint.stream is not None:
                endpoint.stream.cancel()

    # The kubelet's side of the API.

    def register(self, request: device_plugin.RegisterRequest) -> None:
        """Dial the plugin and take its options; raises RuntimeError with the kubelet's text."""
        if self.refuses_registration is not None:
            raise RuntimeError(self.refuses_registration)
        if request.version != _VERSION:
            raise RuntimeError(
                f'requested API version "{request.version}" is not supported by kubelet. '
                f'Supported version is "{_VERSION}"'
            )
        domain, slash, name = request.resource_name.partition("/")
        if not (domain and slash and name) or domain == "kubernetes.io":
            raise RuntimeError(f'the ResourceName "{request.resource_name}" is invalid')
        path = self.plugins / request.endpoint
        authority = AUTHORITIES[self.authority](path)
        channel = grpc.insecure_channel(
            f"unix:{path}", options=(("grpc.default_authority", authority),)
        )
        problem = "failed to dial device plugin"
        try:
            grpc.channel_ready_future(channel).result(timeout=_DIAL_SECONDS)
            problem = "failed to get device plugin options"
            options = DevicePluginStub(channel).GetDevicePluginOptions(device_plugin.Empty())
        except (grpc.FutureTimeoutError, grpc.RpcError) as error:
            channel.close()
            raise RuntimeError(f"{problem}: {error}") from error
        endpoint = Endpoint(request.resource_name, request.endpoint, options, channel)
        with self._changed:
            self.registrations.append(endpoint)
            self._changed.notify_all()
        if self.opens_streams:
            threading.Thread(target=self._watch, args=(endpoint,), daemon=True).start()

    def _watch(self, endpoint: Endpoint) -> None:
        stream = endpoint.stub.ListAndWatch(device_plugin.Empty())
        endpoint.stream, endpoint.watching = stream, True
        try:
            for message in stream:
                with self._changed:
                    endpoint.lists.append({device.ID: device.health for device in message.devices})
                    self._changed.notify_all()
        except (grpc.RpcError, ValueError):
            pass
        finally:
            with self._changed:
                endpoint.watching = False
                self._changed.notify_all()
            self._clean_up(endpoint)

    def _clean_up(self, ended: Endpoint) -> None:
        """Forget a plugin whose stream has ended; late, it may be its successor."""
        races, self.races = self.races, False
        if races:
            self.wait(lambda: self._succeeded(ended), seconds=60.0)
            self.endpoint(ended.resource).channel.close()

    def _succeeded(self, ended: Endpoint) -> bool:
        newest = self.endpoint(ended.resource)
        return newest is not ended and bool(newest.lists)

    def healthy(self, resource: str) -> list[str] | None:
        """Return the healthy devices, None for a resource that nobody ever registered."""
        devices = self.devices(resource)
        if not devices:
            # What only the checkpoint knows has none until its plugin is back.
            return [] if resource in self.pods.known else None
        return [identifier for identifier, health in devices.items() if health == "Healthy"]

    def _allocatable(self) -> Iterator[tuple[str, str]]:
        for resource in dict.fromkeys(e.resource for e in self.registrations):
            for identifier in self.healthy(resource) or ():
                yield resource, identifier


class _Registration(RegistrationServicer):
    def __init__(self, kubelet: FakeKubelet) -> None:
        self._kubelet = kubelet

    def Register(  # noqa: N802 - named by the API
        self, request: device_plugin.RegisterRequest, context: grpc.ServicerContext
    ) -> device_plugin.Empty:
        try:
            self._kubelet.register(request)
        except RuntimeError as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return device_plugin.Empty()

"""A kubelet as far as device plugins see one: real gRPC on real Unix sockets.

It behaves like the device manager of Kubernetes: a start deletes every socket in the directory;
Register dials the plugin, asks for its options and only then answers; ListAndWatch is opened
afterwards; the end of a stream makes all devices of the resource unhealthy.
"""

import socket
import stat
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from kubelet._proto import deviceplugin_v1beta1_pb2 as device_plugin
from kubelet._proto import podresources_v1_pb2 as pod_resources
from kubelet._proto.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginStub,
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)
from kubelet._proto.podresources_v1_pb2_grpc import (
    PodResourcesListerServicer,
    add_PodResourcesListerServicer_to_server,
)

_DIAL_SECONDS = 10.0


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


@dataclass(frozen=True, slots=True)
class Held:
    """Devices of a container, one entry each as the kubelet lists them."""

    namespace: str
    pod: str
    container: str
    resource: str
    ids: tuple[str, ...]


class FakeKubelet:
    """Serves ``kubelet.sock`` in ``device-plugins`` and in ``pod-resources`` below ``directory``.

    ``authority`` is the ``:authority`` of calls to the plugin: ``localhost`` since Kubernetes 1.26,
    the socket's path before. With ``opens_streams`` False the kubelet loses plugins right after
    registration, as kubelets with the re-registration race do.
    """

    def __init__(self, directory: Path, *, authority: str = "localhost") -> None:
        self.plugins = directory / "device-plugins"
        self.pod_resources = directory / "pod-resources"
        self.authority = authority
        self.opens_streams = True
        self.refuses_registration: str | None = None
        self.pod_resources_failure: tuple[grpc.StatusCode, str] | None = None
        self.held: tuple[Held, ...] = ()
        self.registrations: list[Endpoint] = []
        self.list_calls = 0
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

    # What a test does.

    def start(self) -> None:
        """Start as a kubelet does: sockets are deleted, other files stay."""
        for directory in (self.plugins, self.pod_resources):
            directory.mkdir(parents=True, exist_ok=True)
        for path in self.plugins.iterdir():
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()
        (self.plugins / "DEPRECATION").write_text("not a socket\n")
        registration = grpc.server(ThreadPoolExecutor(8))
        add_RegistrationServicer_to_server(_Registration(self), registration)
        registration.add_insecure_port(f"unix:{self.plugins / 'kubelet.sock'}")
        lister = grpc.server(ThreadPoolExecutor(4))
        add_PodResourcesListerServicer_to_server(_PodResources(self), lister)
        lister.add_insecure_port(f"unix:{self.pod_resources / 'kubelet.sock'}")
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
        """Restart; nothing registered survives."""
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
        if request.version != "v1beta1":
            raise RuntimeError(f"requested API version {request.version!r} is not supported")
        channel = grpc.insecure_channel(
            f"unix:{self.plugins / request.endpoint}",
            options=(("grpc.default_authority", self.authority),),
        )
        try:
            grpc.channel_ready_future(channel).result(timeout=_DIAL_SECONDS)
            options = DevicePluginStub(channel).GetDevicePluginOptions(device_plugin.Empty())
        except (grpc.FutureTimeoutError, grpc.RpcError) as error:
            channel.close()
            raise RuntimeError(f"failed to dial device plugin: {error}") from error
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


class _PodResources(PodResourcesListerServicer):
    def __init__(self, kubelet: FakeKubelet) -> None:
        self._kubelet = kubelet

    def List(  # noqa: N802 - named by the API
        self, request: pod_resources.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> pod_resources.ListPodResourcesResponse:
        del request
        self._kubelet.list_calls += 1
        if self._kubelet.pod_resources_failure is not None:
            context.abort(*self._kubelet.pod_resources_failure)
        return list_response(self._kubelet.held)

    def GetAllocatableResources(  # noqa: N802 - named by the API
        self, request: pod_resources.AllocatableResourcesRequest, context: grpc.ServicerContext
    ) -> pod_resources.AllocatableResourcesResponse:
        """Answer healthy devices, one entry each, as the kubelet does."""
        del request
        if self._kubelet.pod_resources_failure is not None:
            context.abort(*self._kubelet.pod_resources_failure)
        return pod_resources.AllocatableResourcesResponse(
            devices=[
                pod_resources.ContainerDevices(resource_name=resource, device_ids=[identifier])
                for resource in dict.fromkeys(e.resource for e in self._kubelet.registrations)
                for identifier, health in self._kubelet.devices(resource).items()
                if health == "Healthy"
            ]
        )


def list_response(held: Sequence[Held]) -> pod_resources.ListPodResourcesResponse:
    """Return the kubelet's answer: all Pods, one entry per device."""
    response = pod_resources.ListPodResourcesResponse()
    for entry in held:
        pod = response.pod_resources.add(name=entry.pod, namespace=entry.namespace)
        container = pod.containers.add(name=entry.container)
        for identifier in entry.ids:
            container.devices.add(resource_name=entry.resource, device_ids=[identifier])
    response.pod_resources.add(name="idle", namespace="default").containers.add(name="main")
    return response

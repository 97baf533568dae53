"""Pods of the fake kubelet: Allocate is called once for a container, its answer kept in a file."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import grpc

from kubelet._proto import deviceplugin_v1beta1_pb2 as messages
from kubelet._proto.deviceplugin_v1beta1_pb2_grpc import DevicePluginStub
from tests.component.fake_kubelet import admission
from tests.component.fake_kubelet.admission import AdmissionError, Allocation
from tests.component.fake_kubelet.pod_resources import Held

CHECKPOINT: Final = "kubelet_internal_checkpoint"
_SECONDS = 5.0


class Plugin(Protocol):
    """A registered plugin."""

    resource: str
    options: messages.DevicePluginOptions

    @property
    def stub(self) -> DevicePluginStub:
        """Its service."""
        ...


class DeviceManager(Protocol):
    """What Pods need of their kubelet."""

    plugins: Path
    held: tuple[Held, ...]

    @property
    def registrations(self) -> Sequence[Plugin]:
        """All plugins, the newest last."""
        ...

    def healthy(self, resource: str) -> list[str] | None:
        """Return the healthy devices, None for a resource that nobody ever registered."""
        ...


class Pods:
    """Pods that were admitted, each by its name."""

    def __init__(self, kubelet: DeviceManager) -> None:
        self._kubelet = kubelet
        self._allocations: dict[tuple[str, str], Allocation] = {}
        #: Only one Pod is admitted at a time.
        self._admission = threading.Lock()
        #: Resources that the checkpoint knew at the start.
        self.known: frozenset[str] = frozenset()

    def held(self) -> tuple[Held, ...]:
        """Return what they hold."""
        return tuple(
            Held("default", one.pod, one.container, one.resource, one.ids)
            for one in self._allocations.values()
        )

    def admit(
        self, pod: str, resource: str, count: int = 1, *, container: str = "main"
    ) -> messages.ContainerAllocateResponse | None:
        """Start a new Pod; returns what its container is given.

        None where the kubelet has never heard of the resource: the container starts without.
        Raises AdmissionError.
        """
        with self._admission:
            healthy = self._kubelet.healthy(resource)
            if healthy is None:
                return None
            admission.needed(
                resource,
                count,
                pod=pod,
                container=container,
                held=None,
                healthy=healthy,
                running_at_start=False,
            )
            entries = (*self._kubelet.held, *self.held())
            in_use = {i for entry in entries if entry.resource == resource for i in entry.ids}
            available = admission.free(resource, count, healthy=healthy, in_use=in_use)
            ids, answer = self._allocate(resource, available, count)
            self._allocations[pod, container] = Allocation(
                pod=pod,
                container=container,
                resource=resource,
                ids=ids,
                answer=answer.SerializeToString(),
            )
            self._write_checkpoint()
        return answer

    def readmit(
        self, pod: str, *, running: bool, count: int | None = None, container: str = "main"
    ) -> messages.ContainerAllocateResponse:
        """Take back a Pod after a start, of whose container the runtime says ``running``.

        The plugin is not asked: the container gets the answer of its first start. ``count`` is the
        request where it is not what the container holds. Raises AdmissionError; the Pod then has no
        device any more.
        """
        with self._admission:
            one = self._allocations[pod, container]
            try:
                admission.needed(
                    one.resource,
                    len(one.ids) if count is None else count,
                    pod=pod,
                    container=container,
                    held=one.ids,
                    healthy=self._kubelet.healthy(one.resource),
                    running_at_start=running,
                )
            except AdmissionError:
                self.remove(pod)
                raise
        return self.restart_container(pod, container=container)

    def restart_container(
        self, pod: str, *, container: str = "main"
    ) -> messages.ContainerAllocateResponse:
        """Return what a container that starts again is given: the answer of its first start."""
        answer = self._allocations[pod, container].answer
        return messages.ContainerAllocateResponse.FromString(answer)

    def remove(self, pod: str) -> None:
        """Remove a Pod; its devices are free again."""
        self._allocations = {k: one for k, one in self._allocations.items() if one.pod != pod}
        self._write_checkpoint()

    def read_checkpoint(self) -> None:
        """Know what the last kubelet knew."""
        try:
            text = (self._kubelet.plugins / CHECKPOINT).read_text()
        except FileNotFoundError:
            return
        allocations, self.known = admission.read(text)
        self._allocations = {(one.pod, one.container): one for one in allocations}

    def _write_checkpoint(self) -> None:
        resources = {plugin.resource for plugin in self._kubelet.registrations}
        registered = {resource: self._kubelet.healthy(resource) or () for resource in resources}
        text = admission.written(self._allocations.values(), registered)
        (self._kubelet.plugins / CHECKPOINT).write_text(text)

    def _allocate(
        self, resource: str, available: list[str], count: int
    ) -> tuple[tuple[str, ...], messages.ContainerAllocateResponse]:
        plugin = next(p for p in reversed(self._kubelet.registrations) if p.resource == resource)
        preferred: Sequence[str] = ()
        try:
            if plugin.options.get_preferred_allocation_available:
                preferred = _preferred(plugin, available, count)
            ids = admission.chosen(available, preferred, count)
            request = messages.ContainerAllocateRequest(devices_ids=ids)
            response: messages.AllocateResponse = plugin.stub.Allocate(
                messages.AllocateRequest(container_requests=[request]), timeout=_SECONDS
            )
        except grpc.RpcError as error:
            raise AdmissionError(_described(error)) from error
        return ids, response.container_responses[0]


def _preferred(plugin: Plugin, available: list[str], count: int) -> Sequence[str]:
    request = messages.ContainerPreferredAllocationRequest(
        available_deviceIDs=available, allocation_size=count
    )
    response: messages.PreferredAllocationResponse = plugin.stub.GetPreferredAllocation(
        messages.PreferredAllocationRequest(container_requests=[request]), timeout=_SECONDS
    )
    return response.container_responses[0].deviceIDs


def _described(error: grpc.RpcError) -> str:
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    if code is None or details is None:
        return str(error)
    return f"rpc error: code = {code().name} desc = {details()}"

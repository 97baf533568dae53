"""The kubelet's PodResources API, with its limit of calls and with answers that make no sense."""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc

from kubelet._proto import podresources_v1_pb2 as messages

_SERVICE = "v1.PodResourcesLister"


@dataclass(frozen=True, slots=True)
class Held:
    """Devices of a container, one entry each as the kubelet lists them."""

    namespace: str
    pod: str
    container: str
    resource: str
    ids: tuple[str, ...]


class RateLimit:
    """A bucket of ``burst`` calls that fills at ``per_second``, for all clients together.

    The values are those of ``pkg/kubelet/apis/podresources`` (``DefaultQPS``,
    ``DefaultBurstTokens``).
    """

    def __init__(
        self,
        *,
        per_second: float = 100.0,
        burst: int = 10,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._monotonic = monotonic
        self._tokens = float(burst)
        self._at = monotonic()

    def allows(self) -> bool:
        """Take one call, if there is one left."""
        now = self._monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_second)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class PodResources:
    """Serves ``held`` and ``allocatable`` devices, both asked anew for each call.

    ``failure`` is answered instead, ``garbage`` is sent in place of a message. ``list_calls``
    counts what reached the server.
    """

    def __init__(
        self,
        held: Callable[[], Sequence[Held]],
        allocatable: Callable[[], Iterable[tuple[str, str]]],
    ) -> None:
        self._held = held
        self._allocatable = allocatable
        self.limit = RateLimit()
        self.failure: tuple[grpc.StatusCode, str] | None = None
        self.garbage: bytes | None = None
        self.list_calls = 0

    def server(self, socket: Path) -> grpc.Server:
        """Return a server on ``socket``, not started."""
        server = grpc.server(ThreadPoolExecutor(4))
        methods = {"List": self._list, "GetAllocatableResources": self._get_allocatable}
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()
        }
        handler = grpc.method_handlers_generic_handler(_SERVICE, handlers)
        server.add_generic_rpc_handlers((handler,))
        server.add_insecure_port(f"unix:{socket}")
        return server

    def _list(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        del request
        self.list_calls += 1
        self._refuse(context)
        return self._sent(list_response(self._held()).SerializeToString())

    def _get_allocatable(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Answer healthy devices, one entry each, as the kubelet does."""
        del request
        self._refuse(context)
        answer = messages.AllocatableResourcesResponse(
            devices=[
                messages.ContainerDevices(resource_name=resource, device_ids=[identifier])
                for resource, identifier in self._allocatable()
            ]
        )
        return self._sent(answer.SerializeToString())

    def _refuse(self, context: grpc.ServicerContext) -> None:
        if not self.limit.allows():
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        if self.failure is not None:
            context.abort(*self.failure)

    def _sent(self, answer: bytes) -> bytes:
        return answer if self.garbage is None else self.garbage


def list_response(held: Sequence[Held]) -> messages.ListPodResourcesResponse:
    """Return the kubelet's answer: all Pods, one entry per device."""
    response = messages.ListPodResourcesResponse()
    for entry in held:
        pod = response.pod_resources.add(name=entry.pod, namespace=entry.namespace)
        container = pod.containers.add(name=entry.container)
        for identifier in entry.ids:
            container.devices.add(resource_name=entry.resource, device_ids=[identifier])
    response.pod_resources.add(name="idle", namespace="default").containers.add(name="main")
    return response

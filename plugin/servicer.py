"""Device plugin v1beta1 over the published offer: a translation that answers from memory.

The kubelet admits Pods in one thread and calls Allocate without a time limit, so nothing here reads
a file, a device or the network.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import grpc

from daemon.logs import fields
from kubelet._proto import deviceplugin_v1beta1_pb2 as messages
from kubelet._proto.deviceplugin_v1beta1_pb2_grpc import DevicePluginServicer
from npu.model import Npu
from plugin.allocation import AllocationError, Grant, Offer, grant
from plugin.claims import Claims
from plugin.devices import Slot
from plugin.metrics import Metrics
from plugin.packing import packed
from plugin.publication import Publication
from plugin.sharing import preferred

log = logging.getLogger(__name__)

#: Streams open at once; one more ends the oldest, so that workers are always left for Allocate.
MAX_STREAMS = 4
#: How long the first list waits for the kubelet to tell who holds what: without knowing, a slot
#: that must be withdrawn would be offered for a moment. With the look at the kubelet's socket, the
#: list is out within two seconds after a kubelet's start all the same.
INFORMED_SECONDS = 1.5


def plugin_options(*, preference: bool) -> messages.DevicePluginOptions:
    """Return the options, the same in GetDevicePluginOptions and in Register.

    The kubelet asks for a preference only where NPUs are shared, or are several of which some are
    nearer to each other: elsewhere each request would cost a call that changes nothing.
    """
    return messages.DevicePluginOptions(
        pre_start_required=False, get_preferred_allocation_available=preference
    )


class Stream:
    """One open ListAndWatch."""

    def __init__(self) -> None:
        self.ended = False


class Servicer(DevicePluginServicer):
    """Serves one resource from ``offer``.

    ``claims`` take note of what is handed out. ``on_list`` is called after each list that was sent.
    """

    def __init__(
        self,
        resource: str,
        offer: Publication[Offer],
        *,
        on_node: Callable[[str], str],
        claims: Claims,
        metrics: Metrics,
        on_list: Callable[[], None] = lambda: None,
    ) -> None:
        self._resource = resource
        self._offer = offer
        self._on_node = on_node
        self._claims = claims
        self._metrics = metrics
        self._on_list = on_list
        self._streams: list[Stream] = []

    @property
    def stream_open(self) -> bool:
        """Whether the kubelet watches the list."""
        return bool(self._streams)

    def end_streams(self) -> None:
        """Let every ListAndWatch return."""
        for stream in list(self._streams):
            stream.ended = True
        self._offer.wake()

    def GetDevicePluginOptions(  # noqa: N802 - named by the API
        self, request: messages.Empty, context: grpc.ServicerContext
    ) -> messages.DevicePluginOptions:
        """Tell whether preferred allocation is wanted; a call before start never is."""
        del request, context
        return self.options

    @property
    def options(self) -> messages.DevicePluginOptions:
        """The options of this resource."""
        offer = self._offer.value
        grouped = any(
            offer.table.npus[slot.device].groups
            for slot in offer.table.of(self._resource)
            if slot.device in offer.table.npus
        )
        return plugin_options(preference=offer.shares or grouped)

    def ListAndWatch(  # noqa: N802 - named by the API
        self, request: messages.Empty, context: grpc.ServicerContext
    ) -> Iterator[messages.ListAndWatchResponse]:
        """Send the list, and again whenever it changes, until either side ends the stream."""
        del request
        stream = Stream()

        def end() -> None:
            stream.ended = True
            self._offer.wake()

        # A handler that waited for its own stop only would keep its worker after a disconnect.
        if not context.add_callback(end):
            return
        for surplus in self._streams[: -(MAX_STREAMS - 1)]:
            surplus.ended = True
        self._streams.append(stream)
        self._offer.wake()
        sent: tuple[Slot, ...] | None = None
        try:
            self._offer.wait_for(
                lambda offer: stream.ended or offer.informed, seconds=INFORMED_SECONDS
            )
            while True:
                slots = self._next_list(stream, sent)
                if stream.ended:
                    return
                yield device_list(slots, self._offer.value.table.npus)
                sent = slots
                self._metrics.list_updates.labels(self._resource).inc()
                self._metrics.list_sent.labels(self._resource).set_to_current_time()
                self._on_list()
                log.info(
                    "Sent the device list",
                    extra=fields(
                        resource=self._resource,
                        healthy=sum(slot.state == "healthy" for slot in slots),
                        listed=len(slots),
                    ),
                )
        finally:
            self._streams.remove(stream)

    def _next_list(self, stream: Stream, sent: tuple[Slot, ...] | None) -> tuple[Slot, ...]:
        """Wait until the list differs from the one sent, or the stream has ended."""
        offer = self._offer.wait_for(
            lambda offer: (
                stream.ended or sent is None or _seen(offer.table.of(self._resource)) != _seen(sent)
            )
        )
        return offer.table.of(self._resource)

    def Allocate(  # noqa: N802 - named by the API
        self, request: messages.AllocateRequest, context: grpc.ServicerContext
    ) -> messages.AllocateResponse:
        """Hand out devices; a refusal carries a text that ends up in the Pod's status."""
        started = time.perf_counter()
        identifiers = [list(container.devices_ids) for container in request.container_requests]
        try:
            with self._claims.lock:
                offer = self._offer.value
                grants = [
                    grant(offer, self._resource, wanted, on_node=self._on_node)
                    for wanted in identifiers
                ]
                for wanted in identifiers:
                    self._claims.give(self._resource, wanted)
        except AllocationError as error:
            self._metrics.errors.labels(error.reason).inc()
            log.warning(
                "Refused an allocation",
                extra=fields(resource=self._resource, ids=_listed(identifiers), reason=error),
            )
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        finally:
            self._metrics.allocate_duration.labels(self._resource).observe(
                time.perf_counter() - started
            )

        def note() -> None:
            self._metrics.allocations.labels(self._resource).inc(len(grants))
            log.info("Allocated", extra=fields(resource=self._resource, ids=_listed(identifiers)))

        # The Pod waits for the answer, not for the log.
        if not context.add_callback(note):
            note()
        return messages.AllocateResponse(
            container_responses=[container_response(g) for g in grants]
        )

    def GetPreferredAllocation(  # noqa: N802 - named by the API
        self, request: messages.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> messages.PreferredAllocationResponse:
        """Spread a container's slots over devices, and pack its whole devices together.

        An error here would fail the Pod for good.
        """
        del context
        table = self._offer.value.table
        devices = {slot.id: slot.device for slot in table.of(self._resource)}
        groups = {
            identifier: npu.groups
            for identifier, device in devices.items()
            if (npu := table.npus.get(device)) is not None and npu.groups
        }
        choose = partial(packed, groups) if groups else partial(preferred, devices)
        return messages.PreferredAllocationResponse(
            container_responses=[
                messages.ContainerPreferredAllocationResponse(
                    deviceIDs=choose(
                        container.available_deviceIDs,
                        container.must_include_deviceIDs,
                        container.allocation_size,
                    )
                )
                for container in request.container_requests
            ]
        )


def _seen(slots: tuple[Slot, ...]) -> list[tuple[str, bool]]:
    """Return what the kubelet is told of slots; reasons are not part of it."""
    return [(slot.id, slot.state == "healthy") for slot in slots]


def _listed(identifiers: list[list[str]]) -> str:
    return " ".join(identifier for wanted in identifiers for identifier in wanted)


def device_list(slots: tuple[Slot, ...], npus: Mapping[str, Npu]) -> messages.ListAndWatchResponse:
    """Return the list message, with the memory node of devices of which it is known.

    Topology stays unset for others: the kubelet hides a device with an empty one from PodResources.
    """
    return messages.ListAndWatchResponse(
        devices=[
            messages.Device(
                ID=slot.id,
                health="Healthy" if slot.state == "healthy" else "Unhealthy",
                topology=_topology(npus.get(slot.device)),
            )
            for slot in slots
        ]
    )


def _topology(npu: Npu | None) -> messages.TopologyInfo | None:
    if npu is None or npu.numa_node is None:
        return None
    return messages.TopologyInfo(nodes=[messages.NUMANode(ID=npu.numa_node)])


def container_response(given: Grant) -> messages.ContainerAllocateResponse:
    """Return what the kubelet passes to the container runtime."""
    return messages.ContainerAllocateResponse(
        envs=given.environment,
        cdi_devices=[messages.CDIDevice(name=name) for name in given.cdi_names],
        devices=[
            messages.DeviceSpec(
                host_path=node.host_path, container_path=node.container_path, permissions="rw"
            )
            for node in given.nodes
        ],
        mounts=[
            messages.Mount(
                host_path=file.host_path, container_path=file.container_path, read_only=True
            )
            for file in given.files
        ],
    )

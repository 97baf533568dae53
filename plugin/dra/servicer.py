"""The three services of a driver, over a :class:`Preparer` and the published offer."""

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import grpc

from daemon.logs import fields
from kubelet._proto import dra_health_v1_pb2 as health
from kubelet._proto import dra_v1_pb2 as dra
from kubelet._proto import pluginregistration_v1_pb2 as registration
from kubelet._proto.dra_health_v1_pb2_grpc import DRAResourceHealthServicer
from kubelet._proto.dra_v1_pb2_grpc import DRAPluginServicer
from kubelet._proto.pluginregistration_v1_pb2_grpc import RegistrationServicer
from plugin.allocation import Offer
from plugin.devices import Slot
from plugin.dra.pools import slots_by_driver
from plugin.dra.preparing import ClaimRef, Given, PrepareError, Preparer
from plugin.publication import Publication

log = logging.getLogger(__name__)

PLUGIN_TYPE = "DRAPlugin"
VERSIONS = ("v1.DRAPlugin", "v1.DRAResourceHealth")
#: The kubelet takes a device for unknown that it has not heard of for that long.
HEALTH_TIMEOUT_SECONDS = 60
#: A stream says something at least this often.
REPEAT_SECONDS = 20.0
#: Streams open at once; one more ends the oldest.
MAX_STREAMS = 2

Counted = Callable[[str], None]


class Registration(RegistrationServicer):
    """Tells the kubelet what is served where, and hears what became of it."""

    def __init__(self, driver: str, endpoint: str) -> None:
        self._info = registration.PluginInfo(
            type=PLUGIN_TYPE, name=driver, endpoint=endpoint, supported_versions=VERSIONS
        )
        self._driver = driver
        self.registrations = 0
        self.problem: str | None = "the kubelet has not asked for the driver yet"

    @property
    def registered(self) -> bool:
        """Whether the kubelet took the driver."""
        return self.problem is None

    def GetInfo(  # noqa: N802 (name of the API)
        self, _request: registration.InfoRequest, _context: grpc.ServicerContext
    ) -> registration.PluginInfo:
        """Say who we are."""
        return self._info

    def NotifyRegistrationStatus(  # noqa: N802 (name of the API)
        self, request: registration.RegistrationStatus, _context: grpc.ServicerContext
    ) -> registration.RegistrationStatusResponse:
        """Take note; the kubelet tries again by itself where it failed."""
        if request.plugin_registered:
            self.registrations += 1
            self.problem = None
            log.info("The kubelet knows the driver", extra=fields(driver=self._driver))
        else:
            self.problem = f"the kubelet refused the driver: {request.error}"
            log.error(
                "The kubelet refused the driver",
                extra=fields(driver=self._driver, reason=request.error),
            )
        return registration.RegistrationStatusResponse()


class Driver(DRAPluginServicer):
    """Prepares claims; each one fails for itself."""

    def __init__(self, preparer: Preparer, *, pool: str, counted: Counted) -> None:
        self._preparer = preparer
        self._pool = pool
        self._counted = counted

    def NodePrepareResources(  # noqa: N802 (name of the API)
        self, request: dra.NodePrepareResourcesRequest, _context: grpc.ServicerContext
    ) -> dra.NodePrepareResourcesResponse:
        """Prepare claims."""
        response = dra.NodePrepareResourcesResponse()
        for claim in _each(request.claims):
            answer = response.claims[claim.uid]
            with self._failing(claim, answer):
                given = self._preparer.prepare(_reference(claim))
                answer.devices.extend(map(self._device, given))
        return response

    def NodeUnprepareResources(  # noqa: N802 (name of the API)
        self, request: dra.NodeUnprepareResourcesRequest, _context: grpc.ServicerContext
    ) -> dra.NodeUnprepareResourcesResponse:
        """Take claims back."""
        response = dra.NodeUnprepareResourcesResponse()
        for claim in _each(request.claims):
            with self._failing(claim, response.claims[claim.uid]):
                self._preparer.unprepare(_reference(claim))
        return response

    @contextlib.contextmanager
    def _failing(
        self,
        claim: dra.Claim,
        answer: dra.NodePrepareResourceResponse | dra.NodeUnprepareResourceResponse,
    ) -> Iterator[None]:
        """Put what goes wrong with a claim into its answer."""
        try:
            yield
        except PrepareError as error:
            answer.error = str(error)
            self._failed(claim, error.reason, error)
        except Exception as error:
            answer.error = f"internal error of the NPU driver: {error!r}"
            self._failed(claim, "internal", error)
            log.exception("A claim failed")

    def _device(self, given: Given) -> dra.Device:
        return dra.Device(
            request_names=[given.share.request] if given.share.request else [],
            pool_name=self._pool,
            device_name=given.share.device,
            cdi_device_ids=[given.cdi_name],
        )

    def _failed(self, claim: dra.Claim, reason: str, error: Exception) -> None:
        self._counted(reason)
        log.warning(
            "Claim refused",
            extra=fields(namespace=claim.namespace, claim=claim.name, reason=reason, detail=error),
        )


class Health(DRAResourceHealthServicer):
    """Tells the kubelet how the devices are; it puts that into the status of Pods."""

    def __init__(self, driver: str, offer: Publication[Offer], *, pool: str) -> None:
        self._driver = driver
        self._offer = offer
        self._pool = pool
        self._streams: list[threading.Event] = []

    def NodeWatchResources(  # noqa: N802 (name of the API)
        self, _request: health.NodeWatchResourcesRequest, context: grpc.ServicerContext
    ) -> Iterator[health.NodeWatchResourcesResponse]:
        """Send the state now, at each change, and now and then."""
        ended = threading.Event()
        self._streams.append(ended)
        for old in self._streams[:-MAX_STREAMS]:
            old.set()
        context.add_callback(lambda: self._end(ended))
        self._offer.wake()
        try:
            while not ended.is_set():
                slots = self._slots(self._offer.value)
                yield self._message(slots)
                news = functools.partial(self._has_news, slots, ended)
                self._offer.wait_for(news, seconds=REPEAT_SECONDS)
        finally:
            self._end(ended)

    def end_streams(self) -> None:
        """End all streams, as the server is about to stop."""
        for stream in list(self._streams):
            self._end(stream)

    def _end(self, stream: threading.Event) -> None:
        stream.set()
        # Ended by the kubelet and by us at the same time, in two threads.
        with contextlib.suppress(ValueError):
            self._streams.remove(stream)
        self._offer.wake()

    def _has_news(self, told: tuple[Slot, ...], ended: threading.Event, offer: Offer) -> bool:
        return ended.is_set() or self._slots(offer) != told

    def _slots(self, offer: Offer) -> tuple[Slot, ...]:
        return slots_by_driver(offer.table).get(self._driver, ())

    def _message(self, slots: tuple[Slot, ...]) -> health.NodeWatchResourcesResponse:
        now = int(time.time())
        return health.NodeWatchResourcesResponse(
            devices=[
                health.DeviceHealth(
                    device=health.DeviceIdentifier(pool_name=self._pool, device_name=slot.id),
                    # Withdrawn ones get no new work; whoever has one may go on.
                    health=health.UNHEALTHY if slot.state == "unhealthy" else health.HEALTHY,
                    last_updated_time=now,
                    health_check_timeout_seconds=HEALTH_TIMEOUT_SECONDS,
                    message=_said(slot),
                )
                for slot in slots
            ]
        )


def _said(slot: Slot) -> str:
    if slot.state == "healthy":
        return ""
    return ": ".join(part for part in (slot.reason, slot.detail) if part)


def _each(claims: Iterable[dra.Claim]) -> Iterable[dra.Claim]:
    """Return each claim once: an answer has one entry for it."""
    return {claim.uid: claim for claim in claims}.values()


def _reference(claim: dra.Claim) -> ClaimRef:
    return ClaimRef(namespace=claim.namespace, name=claim.name, uid=claim.uid)

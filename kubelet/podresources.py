"""Client of the kubelet's PodResources API: which container holds which device.

``h2`` and protobuf are imported on first use, because a service may run without this API.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeVar

if TYPE_CHECKING:
    from kubelet._proto.podresources_v1_pb2 import ContainerResources, ListPodResourcesResponse

T = TypeVar("T")

#: The answer names every Pod of the node; some hundred bytes each.
RECEIVE_LIMIT_BYTES = 16 << 20
#: How long no call is sent after the kubelet said "too many" (it allows 100 a second, burst 10).
RATE_LIMIT_PAUSE_SECONDS = 10.0
_LIST: Final = "/v1.PodResourcesLister/List"
_ALLOCATABLE: Final = "/v1.PodResourcesLister/GetAllocatableResources"

FailureReason = Literal["no_socket", "denied", "unavailable", "timeout", "rate_limited", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class HeldClaim:
    """A device of a claim, as its driver told the kubelet."""

    namespace: str
    name: str
    device: str
    cdi_names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDevices:
    """The devices of one resource that one container holds; identifiers sorted, each once.

    ``dynamic`` ones come from ``claims``, which several Pods may share; ``resource`` is their
    driver.
    """

    namespace: str
    pod: str
    container: str
    resource: str
    device_ids: tuple[str, ...]
    dynamic: bool = False
    claims: tuple[HeldClaim, ...] = ()


class PodResourcesError(Exception):
    """The kubelet did not tell; ``reason`` is a short code for metrics and JSON."""

    def __init__(self, reason: FailureReason, message: str) -> None:
        self.reason: FailureReason = reason
        super().__init__(message)


_REASONS: Final[dict[str, FailureReason]] = {
    "UNAVAILABLE": "unavailable",
    "DEADLINE_EXCEEDED": "timeout",
    "PERMISSION_DENIED": "denied",
}


class PodResourcesClient:
    """Asks the kubelet at ``socket_path``, over a connection per call.

    Safe to use from several threads. ``monotonic`` is a parameter for tests.
    """

    def __init__(
        self,
        socket_path: str | os.PathLike[str],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = os.fspath(socket_path)
        self._monotonic = monotonic
        self._paused_until: float | None = None

    def list(self, timeout_seconds: float) -> tuple[PodDevices, ...]:
        """Return one merged entry per container and resource, in a stable order.

        Ordinary init containers are not in the kubelet's answer. Kubelets before 1.34 also list
        Pods that have finished. Raises PodResourcesError.
        """
        from kubelet._proto.podresources_v1_pb2 import ListPodResourcesResponse

        return merge(self._call(_LIST, ListPodResourcesResponse.FromString, timeout_seconds))

    def allocatable(self, timeout_seconds: float) -> dict[str, tuple[str, ...]]:
        """Return the healthy devices that the kubelet hands out, by resource, in use or not.

        Raises PodResourcesError.
        """
        from kubelet._proto.podresources_v1_pb2 import AllocatableResourcesResponse

        answer = self._call(_ALLOCATABLE, AllocatableResourcesResponse.FromString, timeout_seconds)
        found: dict[str, set[str]] = {}
        for devices in answer.devices:
            found.setdefault(devices.resource_name, set()).update(devices.device_ids)
        return {
            resource: tuple(sorted(identifiers, key=_by_number))
            for resource, identifiers in sorted(found.items())
        }

    def _call(self, method: str, decode: Callable[[bytes], T], timeout_seconds: float) -> T:
        if self._paused_until is not None and self._monotonic() < self._paused_until:
            raise PodResourcesError(
                "rate_limited",
                f"{self._path}: waiting, the kubelet refused a call by its rate limit",
            )
        from google.protobuf.message import DecodeError

        from kubelet.unary import StatusError, call

        try:
            answer = decode(
                call(
                    self._path,
                    method,
                    b"",
                    timeout_seconds=timeout_seconds,
                    limit_bytes=RECEIVE_LIMIT_BYTES,
                )
            )
        except StatusError as error:
            raise self._refused(error.code, error.detail) from error
        except OSError as error:
            raise self._unreachable(error) from error
        except DecodeError as error:
            raise PodResourcesError("failed", f"{self._path}: {error}") from error
        self._paused_until = None
        return answer

    def _refused(self, code: str, detail: str) -> PodResourcesError:
        reason = _REASONS.get(code, "failed")
        if code == "RESOURCE_EXHAUSTED" and "rate limit" in detail:
            reason = "rate_limited"
            self._paused_until = self._monotonic() + RATE_LIMIT_PAUSE_SECONDS
        return PodResourcesError(reason, f"{self._path}: {code}: {detail}")

    def _unreachable(self, error: OSError) -> PodResourcesError:
        if isinstance(error, FileNotFoundError):
            return PodResourcesError(
                "no_socket",
                f"{self._path}: no such socket; is the kubelet running and its pod-resources "
                "directory mounted?",
            )
        reason: FailureReason = "denied" if isinstance(error, PermissionError) else "unavailable"
        return PodResourcesError(reason, f"{self._path}: {error.strerror or error}")


def merge(response: "ListPodResourcesResponse") -> tuple[PodDevices, ...]:
    """Return one entry per container and resource; the kubelet sends one per device.

    Devices of Dynamic Resource Allocation are entries too: ``resource`` is their driver's name.
    """
    found: dict[tuple[str, str, str, str, bool], set[str]] = {}
    claims: dict[tuple[str, str, str, str, bool], set[HeldClaim]] = {}
    for pod in response.pod_resources:
        for container in pod.containers:
            for resource, identifiers, claim in _held(container):
                key = (pod.namespace, pod.name, container.name, resource, claim is not None)
                found.setdefault(key, set()).update(identifiers)
                if claim is not None:
                    claims.setdefault(key, set()).add(claim)
    return tuple(
        PodDevices(
            namespace=namespace,
            pod=pod_name,
            container=container_name,
            resource=resource,
            device_ids=tuple(sorted(identifiers, key=_by_number)),
            dynamic=dynamic,
            claims=tuple(
                sorted(claims.get((namespace, pod_name, container_name, resource, dynamic), ()))
            ),
        )
        for (namespace, pod_name, container_name, resource, dynamic), identifiers in sorted(
            found.items()
        )
        if identifiers
    )


def _held(container: "ContainerResources") -> Iterator[tuple[str, Iterable[str], HeldClaim | None]]:
    for devices in container.devices:
        yield devices.resource_name, devices.device_ids, None
    for claim in container.dynamic_resources:
        for device in claim.claim_resources:
            held = HeldClaim(
                namespace=claim.claim_namespace,
                name=claim.claim_name,
                device=device.device_name,
                cdi_names=tuple(item.name for item in device.cdi_devices),
            )
            yield device.driver_name, (device.device_name,), held


def _by_number(identifier: str) -> list[tuple[int, str]]:
    """Sort ``npu10`` after ``npu2``; identifiers of other plugins may be anything."""
    return [
        (int(part), "") if part.isascii() and part.isdigit() else (-1, part)
        for part in re.split(r"([0-9]{1,18})", identifier)
    ]

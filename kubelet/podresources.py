"""Client of the kubelet's PodResources API: which container holds which device.

grpc is imported on first use, because a service may run without this API and grpc alone costs
20 MiB of memory.
"""

import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    import grpc

    from kubelet._proto.podresources_v1_pb2 import ListPodResourcesResponse
    from kubelet._proto.podresources_v1_pb2_grpc import PodResourcesListerStub

#: The answer names every Pod of the node; gRPC's default of 4 MiB is too small for full nodes.
RECEIVE_LIMIT_BYTES = 16 << 20
#: How long no call is sent after the kubelet said "too many" (it allows 100 a second, burst 10).
RATE_LIMIT_PAUSE_SECONDS = 10.0
_DETAIL_LIMIT = 256

FailureReason = Literal["no_socket", "denied", "unavailable", "timeout", "rate_limited", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDevices:
    """The devices of one resource that one container holds; identifiers sorted, each once."""

    namespace: str
    pod: str
    container: str
    resource: str
    device_ids: tuple[str, ...]


class PodResourcesError(Exception):
    """The kubelet did not tell; ``reason`` is a short code for metrics and JSON."""

    def __init__(self, reason: FailureReason, message: str) -> None:
        self.reason: FailureReason = reason
        super().__init__(message)


class PodResourcesClient:
    """Asks the kubelet at ``socket_path``, over one channel that survives kubelet restarts.

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
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._stub: PodResourcesListerStub | None = None
        self._paused_until: float | None = None

    def list(self, timeout_seconds: float) -> tuple[PodDevices, ...]:
        """Return one merged entry per container and resource, in a stable order.

        Ordinary init containers are not in the kubelet's answer. Kubelets before 1.34 also list
        Pods that have finished. Raises PodResourcesError.
        """
        if self._paused_until is not None and self._monotonic() < self._paused_until:
            raise PodResourcesError(
                "rate_limited",
                f"{self._path}: waiting, the kubelet refused a call by its rate limit",
            )
        if not os.path.exists(self._path):  # noqa: PTH110 - kept a string: gRPC takes no Path
            raise PodResourcesError(
                "no_socket",
                f"{self._path}: no such socket; is the kubelet running and its pod-resources "
                "directory mounted?",
            )
        import grpc

        from kubelet._proto import podresources_v1_pb2 as messages

        try:
            response = self._open().List(
                messages.ListPodResourcesRequest(), timeout=timeout_seconds
            )
        except grpc.RpcError as error:
            raise self._failure(error) from error
        self._paused_until = None
        return merge(response)

    def close(self) -> None:
        """Close the channel; a later call opens a new one."""
        with self._lock:
            channel, self._channel, self._stub = self._channel, None, None
        if channel is not None:
            channel.close()

    def _open(self) -> "PodResourcesListerStub":
        import grpc

        from kubelet._proto.podresources_v1_pb2_grpc import PodResourcesListerStub

        with self._lock:
            if self._stub is None:
                self._channel = grpc.insecure_channel(
                    f"unix:{self._path}",
                    options=(
                        ("grpc.max_receive_message_length", RECEIVE_LIMIT_BYTES),
                        ("grpc.default_authority", "localhost"),
                        ("grpc.enable_http_proxy", 0),
                        # gRPC would wait up to two minutes after a kubelet restart.
                        ("grpc.initial_reconnect_backoff_ms", 200),
                        ("grpc.max_reconnect_backoff_ms", 2000),
                    ),
                )
                self._stub = PodResourcesListerStub(self._channel)
            return self._stub

    def _failure(self, error: "grpc.RpcError") -> PodResourcesError:
        import grpc

        # Every error of a call that was sent is also a Call; the type stubs do not say so.
        call = cast("grpc.Call", error)
        code, detail = call.code(), call.details() or ""
        reasons: dict[grpc.StatusCode, FailureReason] = {
            grpc.StatusCode.UNAVAILABLE: "unavailable",
            grpc.StatusCode.DEADLINE_EXCEEDED: "timeout",
            grpc.StatusCode.PERMISSION_DENIED: "denied",
        }
        reason = reasons.get(code, "failed")
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "rate limit" in detail:
            reason = "rate_limited"
            self._paused_until = self._monotonic() + RATE_LIMIT_PAUSE_SECONDS
        if reason == "unavailable" and "ermission denied" in detail:
            reason = "denied"
        text = f"{self._path}: {code.name}: {detail[:_DETAIL_LIMIT]}"
        return PodResourcesError(reason, text)


def merge(response: "ListPodResourcesResponse") -> tuple[PodDevices, ...]:
    """Return one entry per container and resource; the kubelet sends one per device."""
    found: dict[tuple[str, str, str, str], set[str]] = {}
    for pod in response.pod_resources:
        for container in pod.containers:
            for devices in container.devices:
                key = (pod.namespace, pod.name, container.name, devices.resource_name)
                found.setdefault(key, set()).update(devices.device_ids)
    return tuple(
        PodDevices(
            namespace=namespace,
            pod=pod_name,
            container=container_name,
            resource=resource,
            device_ids=tuple(sorted(identifiers, key=_by_number)),
        )
        for (namespace, pod_name, container_name, resource), identifiers in sorted(found.items())
        if identifiers
    )


def _by_number(identifier: str) -> list[tuple[int, str]]:
    """Sort ``npu10`` after ``npu2``; identifiers of other plugins may be anything."""
    return [
        (int(part), "") if part.isascii() and part.isdigit() else (-1, part)
        for part in re.split(r"([0-9]{1,18})", identifier)
    ]

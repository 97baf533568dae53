"""One gRPC server for one resource on one socket, used once."""

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from daemon.logs import fields
from kubelet._proto import deviceplugin_v1beta1_pb2 as messages
from kubelet._proto.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginStub,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)
from kubelet.paths import new_socket_name
from plugin import sockets
from plugin.servicer import MAX_STREAMS, Servicer

log = logging.getLogger(__name__)

API_VERSION = "v1beta1"
#: Each open stream holds a worker; four more are left for unary calls.
WORKERS = MAX_STREAMS + 4
SELF_DIAL_SECONDS = 2.0
#: The kubelet dials back for up to 10 s inside Register.
REGISTER_SECONDS = 12.0
STOP_GRACE_SECONDS = 0.5
_DETAIL_LIMIT = 256


class ServerError(Exception):
    """Serving or registering failed; ``reason`` is a short code for the metric."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class ResourceServer:
    """Serves ``resource`` on a socket of a new name in ``directory``."""

    def __init__(self, resource: str, directory: Path, servicer: Servicer) -> None:
        self.resource = resource
        self.socket = directory / new_socket_name()
        self.servicer = servicer
        self._server = grpc.server(
            ThreadPoolExecutor(WORKERS, thread_name_prefix="grpc"),
            options=(("grpc.so_reuseport", 0),),
        )
        add_DevicePluginServicer_to_server(servicer, self._server)

    def start(self) -> None:
        """Bind, serve, and make sure that the socket answers before the kubelet dials it.

        Raises ServerError.
        """
        try:
            self._server.add_insecure_port(f"unix:{self.socket}")
            self._server.start()
        except RuntimeError as error:
            reason = sockets.bind_problem(self.socket) or str(error)
            raise ServerError("serve_failed", f"{self.socket}: cannot serve: {reason}") from error
        try:
            with _dial(self.socket) as channel:
                DevicePluginStub(channel).GetDevicePluginOptions(
                    messages.Empty(), timeout=SELF_DIAL_SECONDS, wait_for_ready=True
                )
        except grpc.RpcError as error:
            text = f"{self.socket}: does not answer: {_described(error)}"
            raise ServerError("serve_failed", text) from error

    def register(self, kubelet_socket: Path) -> None:
        """Register with the kubelet, which calls back before it answers. Raises ServerError."""
        request = messages.RegisterRequest(
            version=API_VERSION,
            endpoint=self.socket.name,
            resource_name=self.resource,
            options=self.servicer.options,
        )
        try:
            with _dial(kubelet_socket) as channel:
                RegistrationStub(channel).Register(request, timeout=REGISTER_SECONDS)
        except grpc.RpcError as error:
            text = f"{kubelet_socket}: {self.resource} was not registered: {_described(error)}"
            raise ServerError("register_failed", text) from error

    def stop(self) -> None:
        """End the streams, then the server, then remove the socket."""
        self.servicer.end_streams()
        self._server.stop(STOP_GRACE_SECONDS).wait(STOP_GRACE_SECONDS + 1.0)
        try:
            self.socket.unlink(missing_ok=True)
        except OSError as error:
            log.warning("Cannot remove the own socket", extra=fields(path=self.socket, error=error))


def _dial(socket: Path) -> grpc.Channel:
    return grpc.insecure_channel(
        f"unix:{socket}",
        options=(("grpc.default_authority", "localhost"), ("grpc.enable_http_proxy", 0)),
    )


def _described(error: grpc.RpcError) -> str:
    # Every error of a call is also a Call; the type stubs do not say so.
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    if code is None or details is None:
        return str(error)[:_DETAIL_LIMIT]
    return f"{code().name}: {(details() or '')[:_DETAIL_LIMIT]}"

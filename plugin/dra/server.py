"""The two sockets of one driver: its registration, which the kubelet watches for, and its API."""

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from daemon.logs import fields
from kubelet._proto.dra_health_v1_pb2_grpc import add_DRAResourceHealthServicer_to_server
from kubelet._proto.dra_v1_pb2_grpc import add_DRAPluginServicer_to_server
from kubelet._proto.pluginregistration_v1_pb2_grpc import add_RegistrationServicer_to_server
from plugin import sockets
from plugin.dra.servicer import MAX_STREAMS, Driver, Health, Registration
from plugin.server import STOP_GRACE_SECONDS, ServerError

log = logging.getLogger(__name__)

_WORKERS = MAX_STREAMS + 4


class DriverServer:
    """Serves a driver until :meth:`stop`.

    The names of the sockets are fixed: the kubelet notices a new socket of the old name, and what a
    killed driver left is replaced.
    """

    def __init__(
        self, *, api: Path, registration: Path, driver: Driver, health: Health, name: str
    ) -> None:
        self.api = api
        self.socket = registration
        self.registration = Registration(name, str(api))
        self._health = health
        options = (("grpc.so_reuseport", 0),)
        self._api_server = grpc.server(
            ThreadPoolExecutor(_WORKERS, thread_name_prefix="dra"), options=options
        )
        add_DRAPluginServicer_to_server(driver, self._api_server)
        add_DRAResourceHealthServicer_to_server(health, self._api_server)
        self._registration_server = grpc.server(
            ThreadPoolExecutor(2, thread_name_prefix="registration"), options=options
        )
        add_RegistrationServicer_to_server(self.registration, self._registration_server)

    def start(self) -> None:
        """Serve the API, then announce it. Raises ServerError."""
        for path, server in (
            (self.api, self._api_server),
            (self.socket, self._registration_server),
        ):
            try:
                path.unlink(missing_ok=True)
                server.add_insecure_port(f"unix:{path}")
                server.start()
            except (RuntimeError, OSError) as error:
                # What is served of it would take the sockets of the next try away when it ends.
                self.stop()
                raise ServerError("serve_failed", f"{path}: cannot serve: {error}") from error

    @property
    def complete(self) -> bool:
        """Whether both sockets are where the kubelet looks for them."""
        return all(sockets.identity(path) is not None for path in (self.api, self.socket))

    def stop(self) -> None:
        """Withdraw the announcement first, then end the API."""
        self._registration_server.stop(0).wait(1.0)
        self._unlink(self.socket)
        self._health.end_streams()
        self._api_server.stop(STOP_GRACE_SECONDS).wait(STOP_GRACE_SECONDS + 1.0)
        self._unlink(self.api)

    def _unlink(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("Cannot remove the own socket", extra=fields(path=path, error=error))

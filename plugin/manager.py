"""Keeps every resource of this board registered with the kubelet, for ever."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.core import Metric

from daemon.backoff import Backoff
from daemon.http import Handler
from daemon.logs import fields
from kubelet.paths import device_plugins_dir, registration_socket
from plugin import sockets
from plugin.allocation import Offer
from plugin.claims import Claims
from plugin.metrics import Metrics, gauge
from plugin.publication import Publication
from plugin.registration import (
    SUCCESSION_SECONDS,
    Cause,
    Registered,
    Seen,
    SocketIdentity,
    State,
    Unregistered,
    decide,
)
from plugin.server import ResourceServer, ServerError
from plugin.servicer import Servicer

log = logging.getLogger(__name__)

#: Looks at the sockets are two stat calls. Polling needs no inotify instance, of which all root
#: processes of a node share 128.
POLL_SECONDS = 0.25
_BACKOFF_CEILING_SECONDS = 30.0


@dataclass(slots=True, kw_only=True)
class _Endpoint:
    """The registration of one resource."""

    resource: str
    state: State = field(default_factory=Unregistered)
    server: ResourceServer | None = None
    backoff: Backoff = field(
        default_factory=lambda: Backoff(ceiling_seconds=_BACKOFF_CEILING_SECONDS)
    )
    #: Since when a kubelet is there to register with.
    wanted_since: float = 0.0
    list_sent: bool = False
    problem: str = "not registered yet"

    @property
    def watched(self) -> bool:
        """Whether the kubelet has ListAndWatch open."""
        server = self.server
        return server is not None and server.servicer.stream_open


class Manager:
    """One step per poll; also a service, whose stop ends the servers.

    ``offer`` tells which resources there are: each one that was ever listed is served until the
    process ends, so that a lost device stays visible as unhealthy. All of
    ``on_registered`` are called after each registration.
    """

    def __init__(
        self,
        kubelet_dir: Path,
        offer: Publication[Offer],
        *,
        on_node: Callable[[str], str],
        claims: Claims,
        metrics: Metrics,
        stream_timeout_seconds: float,
        on_registered: Iterable[Callable[[], None]] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = device_plugins_dir(kubelet_dir)
        self._kubelet_socket = registration_socket(kubelet_dir)
        self._offer = offer
        self._on_node = on_node
        self._claims = claims
        self._on_registered = tuple(on_registered)
        self._metrics = metrics
        self._stream_timeout = stream_timeout_seconds
        self._monotonic = monotonic
        self._endpoints: dict[str, _Endpoint] = {}
        self._kubelet: SocketIdentity | None = None
        self._kubelet_since = monotonic()
        #: The kubelet whose start was counted, which several resources notice.
        self._restarted_as: SocketIdentity | None = None
        self._directory_problem: str | None = None
        self._lock = threading.Lock()
        self._stopped = False

    def start(self) -> None:
        """Do nothing: the first step starts what is needed."""

    def step(self) -> None:
        """Compare what is with what should be, and act on the difference."""
        now = self._monotonic()
        for resource in self._offer.value.table.resources():
            if resource not in self._endpoints:
                self._endpoints[resource] = _Endpoint(resource=resource, wanted_since=now)
                self._metrics.prepare(resource)
        if not self._endpoints:
            return
        self._look_at_directory()
        kubelet = sockets.identity(self._kubelet_socket)
        if kubelet != self._kubelet:
            self._kubelet, self._kubelet_since = kubelet, now
        for endpoint in self._endpoints.values():
            self._advance(endpoint, kubelet)

    def stop(self) -> None:
        """End all servers and remove their sockets."""
        with self._lock:
            self._stopped = True
            servers = [end.server for end in self._endpoints.values() if end.server is not None]
        for server in servers:
            server.stop()

    def problems(self) -> list[str]:
        """Return why the kubelet cannot use the devices now, one line each."""
        found = [] if self._directory_problem is None else [self._directory_problem]
        for endpoint in list(self._endpoints.values()):
            if isinstance(endpoint.state, Unregistered):
                found.append(f"{endpoint.resource}: {endpoint.problem}")
            elif not endpoint.watched:
                found.append(f"{endpoint.resource}: registered, but the kubelet watches no list")
            elif not endpoint.list_sent:
                found.append(f"{endpoint.resource}: registered, the first list is not sent yet")
        return found

    def pages(self) -> dict[str, Handler]:
        """Return the pages of this mode: none."""
        return {}

    def collect(self) -> Iterator[Metric]:
        """Yield whether the kubelet watches each list."""
        family = gauge(
            "stream_open",
            "Whether the kubelet watches the device list (1) or not (0).",
            ["resource"],
        )
        for endpoint in list(self._endpoints.values()):
            family.add_metric([endpoint.resource], float(endpoint.watched))
        yield family

    def _look_at_directory(self) -> None:
        problem = sockets.directory_problem(self._directory)
        if problem != self._directory_problem and problem is not None:
            self._metrics.errors.labels("directory_unusable").inc()
            log.error("Cannot reach the kubelet", extra=fields(reason=problem))
        self._directory_problem = problem

    def _advance(self, endpoint: _Endpoint, kubelet: SocketIdentity | None) -> None:
        server = endpoint.server
        seen = Seen(
            kubelet=kubelet,
            # Looked at after the kubelet's: a new kubelet has removed it before creating its own.
            own_socket=server is not None and sockets.identity(server.socket) is not None,
            stream_open=endpoint.watched,
        )
        now = self._monotonic()
        decision = decide(
            endpoint.state, seen, now=now, stream_timeout_seconds=self._stream_timeout
        )
        endpoint.state = decision.state
        if decision.move == "wait" and kubelet is None:
            endpoint.problem = f"waiting for the kubelet: no socket {self._kubelet_socket}"
        if decision.move == "replace" and decision.cause is not None:
            self._end(endpoint, decision.cause, kubelet, now)
            decision = decide(
                endpoint.state, seen, now=now, stream_timeout_seconds=self._stream_timeout
            )
        if decision.move == "start" and kubelet is not None:
            self._begin(endpoint, kubelet)

    def _end(
        self, endpoint: _Endpoint, cause: Cause, kubelet: SocketIdentity | None, now: float
    ) -> None:
        server, endpoint.server = endpoint.server, None
        log.warning(
            "Registering anew",
            extra=fields(
                resource=endpoint.resource, cause=cause, replaced=server and server.socket
            ),
        )
        if server is not None:
            server.stop()
        if cause == "kubelet_restarted":
            self._claims.keep()
            if kubelet != self._restarted_as:
                self._restarted_as = kubelet
                self._metrics.kubelet_restarts.inc()
            endpoint.backoff.reset()
            endpoint.state = Unregistered()
            endpoint.wanted_since = now
        else:
            self._metrics.errors.labels(cause).inc()
            delay = SUCCESSION_SECONDS + endpoint.backoff.next_delay_seconds()
            endpoint.state = Unregistered(kubelet=kubelet, retry_at=self._monotonic() + delay)
        endpoint.problem = f"registering anew: {cause}"

    def _begin(self, endpoint: _Endpoint, kubelet: SocketIdentity) -> None:
        wanted_since = max(endpoint.wanted_since, self._kubelet_since)
        endpoint.list_sent = False

        def on_list() -> None:
            if not endpoint.list_sent:
                endpoint.list_sent = True
                endpoint.backoff.reset()
                seconds = self._monotonic() - wanted_since
                self._metrics.registration_duration.labels(endpoint.resource).observe(seconds)
                log.info(
                    "The kubelet knows the devices",
                    extra=fields(resource=endpoint.resource, seconds=round(seconds, 3)),
                )

        servicer = Servicer(
            endpoint.resource,
            self._offer,
            on_node=self._on_node,
            claims=self._claims,
            metrics=self._metrics,
            on_list=on_list,
        )
        server = ResourceServer(endpoint.resource, self._directory, servicer)
        with self._lock:
            if self._stopped:
                return
            endpoint.server = server
        try:
            sockets.remove_stale(self._directory)
            server.start()
            server.register(self._kubelet_socket)
        except (ServerError, OSError) as error:
            server.stop()
            endpoint.server = None
            self._failed(endpoint, kubelet, error)
            return
        endpoint.state = Registered(kubelet=kubelet, streamless_since=self._monotonic())
        self._metrics.registrations.labels(endpoint.resource).inc()
        for call in self._on_registered:
            call()
        log.info(
            "Registered resource %s", endpoint.resource, extra=fields(socket=server.socket.name)
        )

    def _failed(self, endpoint: _Endpoint, kubelet: SocketIdentity, error: Exception) -> None:
        delay = endpoint.backoff.next_delay_seconds()
        reason = error.reason if isinstance(error, ServerError) else "serve_failed"
        self._metrics.errors.labels(reason).inc()
        endpoint.state = Unregistered(kubelet=kubelet, retry_at=self._monotonic() + delay)
        problem = str(error)
        if problem != endpoint.problem or endpoint.backoff.attempts & 15 == 0:
            log.error(
                "Cannot register",
                extra=fields(
                    resource=endpoint.resource,
                    reason=problem,
                    attempts=endpoint.backoff.attempts,
                    next_attempt_seconds=round(delay, 1),
                ),
            )
        endpoint.problem = problem

"""Keeps a driver served for each kind of NPU on the board, whatever the kubelet does.

Nothing is registered actively: the kubelet watches its directory ``plugins_registry`` and asks each
socket it finds there, also after a restart of its own.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from prometheus_client.core import Metric

from daemon.backoff import Backoff
from daemon.http import Handler, Request, Response, text
from daemon.logs import fields
from kubelet.paths import (
    check_socket_path,
    driver_registration_socket,
    driver_socket,
    plugins_registry_dir,
)
from plugin import sockets
from plugin.allocation import Offer
from plugin.cdi import CdiFile
from plugin.claims import Claims
from plugin.dra.pools import pool_of, slots_by_driver
from plugin.dra.prepared import FILE_NAME, Checkpoint, as_data
from plugin.dra.preparing import AllocationReader, Preparer, Site
from plugin.dra.server import DriverServer
from plugin.dra.servicer import Driver, Health
from plugin.metrics import Metrics, counter, gauge
from plugin.publication import Publication
from plugin.server import ServerError

if TYPE_CHECKING:
    from kubelet.podresources import HeldClaim

log = logging.getLogger(__name__)

#: How long nothing is offered while it is not known whose the devices are. Containers wait for a
#: driver; a kubelet that misses one for 30 seconds deletes its slices.
INFORMED_SECONDS = 10.0
#: How often it is asked meanwhile: on a board that starts, the first question may come to nothing.
_ASK_SECONDS = 1.0


@dataclass(slots=True, kw_only=True)
class _Served:
    name: str
    preparer: Preparer
    cdi: CdiFile
    api: Path
    registration: Path
    server: DriverServer | None = None
    problem: str | None = None
    retry_in_steps: int = 0
    backoff: Backoff = field(default_factory=Backoff)


class LookedAt(Protocol):
    """The board, as far as it was looked at."""

    @property
    def offer(self) -> Publication[Offer]:
        """What there is to allocate."""
        ...

    @property
    def looked(self) -> bool:
        """Whether the board was looked at once."""
        ...


class Drivers:
    """Serves the drivers; :meth:`step` is one turn of its loop."""

    def __init__(
        self,
        kubelet_dir: Path,
        board: LookedAt,
        *,
        site: Site,
        cdi_dir: Path,
        claims: Claims,
        metrics: Metrics,
        reader: AllocationReader | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._board = board
        self._monotonic = monotonic
        self._looked_at: float | None = None
        self._ask_at = 0.0
        self._begun = False
        self._kubelet_dir = kubelet_dir
        self._registry = plugins_registry_dir(kubelet_dir)
        self._offer = board.offer
        self._site = site
        self._cdi_dir = cdi_dir
        self._claims = claims
        self._metrics = metrics
        self._reader = reader
        #: Tells what containers have by claims of a driver, None while not known.
        self.held: Callable[[str], tuple[HeldClaim, ...] | None] = lambda _driver: None
        #: Has the kubelet asked at once who holds what.
        self.ask: Callable[[], None] = lambda: None
        self._served: dict[str, _Served] = {}
        self._directory_problem: str | None = None
        self._lock = threading.Lock()
        self._stopped = False

    def start(self) -> None:
        """Do nothing: the first step starts what is needed."""

    def step(self) -> None:
        """Serve what the board has, and put sockets and CDI files right."""
        if not self._knows_enough():
            return
        for name in slots_by_driver(self._offer.value.table):
            if name not in self._served and self._usable(name):
                self._add(name)
        for served in self._served.values():
            served.preparer.recover(self.held(served.name))
            served.preparer.refresh()
            if served.server is not None and not served.server.complete:
                log.warning("A socket vanished, serving anew", extra=fields(driver=served.name))
                self._metrics.errors.labels("own_socket_vanished").inc()
                served.server.stop()
                served.server = None
            if served.server is None:
                self._serve(served)
        self._begun = True

    def _knows_enough(self) -> bool:
        """Tell whether something may be offered: whose it is should be known, for a moment.

        Without knowing, an NPU that a Pod of the other mode has would be given away.
        """
        if self._begun:
            return True
        if not self._board.looked:
            return False
        now = self._monotonic()
        if self._looked_at is None:
            self._looked_at, self._ask_at = now, now + _ASK_SECONDS
        known = self._offer.value.informed or now - self._looked_at >= INFORMED_SECONDS
        if not known and now >= self._ask_at:
            self._ask_at = now + _ASK_SECONDS
            self.ask()
        return known

    def stop(self) -> None:
        """End all drivers, remove their sockets and CDI files; the records of claims stay."""
        with self._lock:
            self._stopped = True
            all_ = list(self._served.values())
        for served in all_:
            if served.server is not None:
                served.server.stop()
            served.cdi.stop()

    def problems(self) -> list[str]:
        """Return why the kubelet cannot use the devices now, one line each."""
        if not self._begun:
            return ["the kubelet has not told yet who holds what"]
        found = [] if self._directory_problem is None else [self._directory_problem]
        for served in list(self._served.values()):
            if served.server is None:
                found.append(f"{served.name}: {served.problem or 'not served yet'}")
            elif served.server.registration.problem is not None:
                found.append(f"{served.name}: {served.server.registration.problem}")
            if served.cdi.problem is not None:
                found.append(served.cdi.problem)
        return found

    def collect(self) -> Iterator[Metric]:
        """Yield whether the kubelet knows each driver, and how many claims are prepared."""
        known = gauge(
            "driver_registered", "Whether the kubelet knows the driver (1) or not (0).", ["driver"]
        )
        asked = counter("driver_registrations", "Times the kubelet took the driver.", ["driver"])
        prepared = gauge("prepared_claims", "Claims prepared on this node.", ["driver"])
        for served in list(self._served.values()):
            server = served.server
            registered = server is not None and server.registration.registered
            known.add_metric([served.name], float(registered))
            asked.add_metric([served.name], server.registration.registrations if server else 0)
            prepared.add_metric([served.name], len(served.preparer.prepared()))
        yield from (known, asked, prepared)

    def pages(self) -> dict[str, Handler]:
        """Return the page of this mode."""
        return {"/dra": self.page}

    def page(self, _request: Request) -> Response:
        """Answer ``/dra``: what the guard publishes as ResourceSlices, and prepared claims.

        Before it is known what there is, saying "nothing" would have the slices deleted.
        """
        if not self._begun:
            return text("not looked at the board yet", HTTPStatus.SERVICE_UNAVAILABLE)
        # Hundreds of devices fit into what the guard reads of a page, but not with blanks.
        body = json.dumps(self.as_data(), separators=(",", ":")) + "\n"
        return Response(body=body.encode(), content_type="application/json")

    def as_data(self) -> dict[str, object]:
        """Return the drivers with their devices."""
        simulated = self._site.simulated()
        table = self._offer.value.table
        return {
            "pool": self._site.pool,
            "drivers": [
                {
                    "name": served.name,
                    "registered": served.server is not None
                    and served.server.registration.registered,
                    "devices": [
                        asdict(device)
                        for device in pool_of(table, served.name, simulated=simulated)
                    ],
                    "claims": as_data(served.preparer.prepared()),
                }
                for served in list(self._served.values())
            ],
        }

    def _usable(self, name: str) -> bool:
        """Tell whether a driver can be served, and make its directory."""
        problem = sockets.directory_problem(self._registry)
        if problem is None:
            own = driver_socket(self._kubelet_dir, name).parent
            try:
                own.mkdir(mode=0o750, exist_ok=True)
            except OSError as error:
                problem = f"{own}: {error.strerror} ({error.errno})"
        if problem is not None and problem != self._directory_problem:
            self._metrics.errors.labels("directory_unusable").inc()
            log.error("Cannot reach the kubelet", extra=fields(reason=problem))
        self._directory_problem = problem
        return problem is None

    def _add(self, name: str) -> None:
        api = driver_socket(self._kubelet_dir, name)
        cdi = CdiFile(self._cdi_dir / f"npu-platform-{name}.json")
        self._served[name] = _Served(
            name=name,
            cdi=cdi,
            api=api,
            registration=driver_registration_socket(self._kubelet_dir, name),
            preparer=Preparer(
                name,
                site=self._site,
                offer=self._offer,
                checkpoint=Checkpoint(api.with_name(FILE_NAME)),
                cdi=cdi,
                claims=self._claims,
                reader=self._reader,
            ),
        )

    def _serve(self, served: _Served) -> None:
        if served.retry_in_steps > 0:
            served.retry_in_steps -= 1
            return
        try:
            for path in (served.api, served.registration):
                check_socket_path(path)
            server = self._server(served)
            server.start()
        except (ServerError, ValueError) as error:
            served.problem = str(error)
            served.retry_in_steps = round(served.backoff.next_delay_seconds())
            self._metrics.errors.labels("serve_failed").inc()
            log.error("Cannot serve", extra=fields(driver=served.name, reason=error))  # noqa: TRY400
            return
        with self._lock:
            if not self._stopped:
                served.server, served.problem = server, None
                served.backoff.reset()
                log.info("Serving driver %s", served.name, extra=fields(socket=served.api))
                return
        server.stop()

    def _server(self, served: _Served) -> DriverServer:
        return DriverServer(
            name=served.name,
            api=served.api,
            registration=served.registration,
            driver=Driver(
                served.preparer,
                pool=self._site.pool,
                counted=lambda reason: self._metrics.errors.labels(reason).inc(),
            ),
            health=Health(served.name, self._offer, pool=self._site.pool),
        )

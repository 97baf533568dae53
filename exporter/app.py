"""The exporter put together: loops, collectors, and what it answers over HTTP."""

import time
from collections.abc import Callable, Sequence
from functools import partial

from daemon.http import Handler, Request, Response
from daemon.probes import liveness, probe
from daemon.supervisor import Loop
from exporter import allocation, board, history, sampler, telemetry
from exporter.accounting import Account
from exporter.allocation import AllocationWatch, PodLister
from exporter.board import BoardWatch
from exporter.catalogue import Sample
from exporter.collectors.allocation import AllocationCollector
from exporter.collectors.clock import ClockCollector
from exporter.collectors.cooling import CoolingCollector
from exporter.collectors.identity import IdentityCollector
from exporter.collectors.load import LoadCollector
from exporter.collectors.memory import MemoryCollector
from exporter.collectors.telemetry import TelemetryCollector
from exporter.collectors.temperature import TemperatureCollector
from exporter.exposition import render
from exporter.failures import Failures
from exporter.history import History
from exporter.sampler import Sampler
from exporter.scrape import Scraper, deadline_seconds
from exporter.selfmetrics import SelfMetrics
from exporter.settings import Settings
from exporter.telemetry import Program, TelemetryWatch
from npu import thermal
from npu.drivers.ascend import AscendDriver
from npu.host import Host
from npu.model import Clock, CoreLoad, Npu
from npu.scan import driver_of


class Drivers:
    """The drivers of one host, each NPU read through its own."""

    def __init__(self, host: Host, telemetry: TelemetryWatch) -> None:
        self._host = host
        self._telemetry = telemetry

    def load(self, npu: Npu) -> tuple[CoreLoad, ...]:
        """Read the busy share per core; raises NpuError."""
        if npu.driver == AscendDriver.name:
            return self._telemetry.load(npu)
        return driver_of(npu).load(self._host, npu)

    def clock(self, npu: Npu) -> Clock:
        """Read the clock."""
        return driver_of(npu).clock(self._host, npu)

    def powered(self, npu: Npu) -> bool | None:
        """Tell whether the power domain is on."""
        return driver_of(npu).powered(self._host, npu)


class Exporter:
    """All parts of the exporter over one board.

    ``lister`` tells who holds devices, None where no kubelet is asked. ``npu_smi`` tells about
    Ascend chips, None where it is not asked.
    """

    def __init__(
        self,
        host: Host,
        lister: PodLister | None,
        settings: Settings,
        *,
        npu_smi: Program | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        failures = Failures()
        self._deadline = settings.collector_deadline_seconds
        self._account = Account(retention_seconds=settings.pod_retention_seconds)
        self.board = BoardWatch(partial(board.look, host), failures)
        self.telemetry = TelemetryWatch(npu_smi, self.board, failures, monotonic=monotonic)
        drivers = Drivers(host, self.telemetry)
        self.allocation = AllocationWatch(
            lister,
            self.board,
            self._account,
            failures,
            prefixes=settings.resource_prefixes,
            monotonic=monotonic,
        )
        self.sampler = Sampler(
            self.board,
            self._account,
            drivers.load,
            self.allocation.pods,
            failures,
            monotonic=monotonic,
        )
        self.history = History(
            self.board,
            self._account,
            partial(thermal.millicelsius, host),
            self.telemetry.celsius,
            monotonic=monotonic,
        )
        self.loops: tuple[Loop, ...] = (
            Loop(name="board", period_seconds=board.PERIOD_SECONDS, step=self.board.step),
            Loop(
                name="allocation",
                period_seconds=allocation.PERIOD_SECONDS,
                step=self.allocation.step,
            ),
            Loop(name="sampler", period_seconds=sampler.PERIOD_SECONDS, step=self.sampler.step),
            Loop(name="history", period_seconds=history.PERIOD_SECONDS, step=self.history.step),
        )
        if self.telemetry.on:
            self.loops = (
                self.loops[0],
                Loop(
                    name="telemetry",
                    period_seconds=telemetry.PERIOD_SECONDS,
                    step=self.telemetry.step,
                ),
                *self.loops[1:],
            )
        self.own = SelfMetrics(failures, self.loops)
        collectors = (
            IdentityCollector(self.board),
            LoadCollector(self.board, self._account, self.sampler),
            ClockCollector(self.board, drivers),
            TemperatureCollector(
                self.board, partial(thermal.millicelsius, host), self.telemetry.celsius
            ),
            CoolingCollector(partial(thermal.cooling_devices, host)),
            MemoryCollector(host.read_text),
            AllocationCollector(self.board, self._account, self.allocation),
            TelemetryCollector(self.telemetry),
        )
        self._scraper = Scraper(collectors, failures, self.own.samples, monotonic=monotonic)

    def routes(self, stalled: Callable[[], Sequence[str]]) -> dict[str, Handler]:
        """Return the handlers by path; ``stalled`` names the loops that do not tick."""
        return {
            "/": self._page,
            "/metrics": self._metrics,
            "/healthz": liveness(stalled),
            "/readyz": probe(self.problems),
        }

    def scrape(
        self, names: frozenset[str] | None = None, *, deadline: float | None = None
    ) -> list[Sample]:
        """Return the samples of all metrics, or of those in ``names``."""
        with self.own:
            return self._scraper.scrape(names, deadline=deadline or self._deadline)

    def problems(self) -> list[str]:
        """Return why this exporter cannot measure; none on a node without an NPU."""
        now = self.board.current
        if now is None:
            return [f"the board cannot be scanned: {self.board.error or 'not tried yet'}"]
        found = (self.sampler.problem(npu.id) for npu in now.inventory.npus)
        return [problem for problem in found if problem is not None]

    def _metrics(self, request: Request) -> Response:
        given = request.query.get("name[]")
        deadline = deadline_seconds(request.headers, self._deadline)
        samples = self.scrape(None if given is None else frozenset(given), deadline=deadline)
        body, content_type = render(samples, request.headers.get("accept", ""))
        return Response(body=body, content_type=content_type)

    def _page(self, _request: Request) -> Response:
        from exporter.page import render_page

        return render_page(self.scrape(), self.sampler.seen(), self.history.points, self.problems())

"""One scrape: the wanted collectors, none held up by another.

Each collector that reads the board has its own worker thread and all share one deadline, so a
scrape returns in time whatever a driver does; what did not come in time is absent and its collector
unsuccessful. Collectors that tell from memory need no thread.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from exporter import catalogue
from exporter.catalogue import CATALOGUE, SELF, Sample
from exporter.collectors import Collector, Reading
from exporter.failures import Failures
from exporter.worker import Call, StuckError, Worker

DEADLINE_SECONDS = 2.0
#: Prometheus tells how long it waits; the answer must travel in the rest.
_TRAVEL_SECONDS = 0.5
_MIN_DEADLINE_SECONDS = 0.1
#: A collector gets this long alone before the next one begins beside it: sound ones take a
#: millisecond, and threads that read at the same time only fight for the interpreter's lock.
_HEAD_START_SECONDS = 0.02

#: A reading and how long it took.
Timed = tuple[Reading, float]


def deadline_seconds(headers: Mapping[str, str], limit: float = DEADLINE_SECONDS) -> float:
    """Return the deadline for a scrape with these request headers (names in lower case)."""
    try:
        told = float(headers.get("x-prometheus-scrape-timeout-seconds", limit + _TRAVEL_SECONDS))
    except ValueError:
        return limit
    if not told > 0:
        return limit
    return max(_MIN_DEADLINE_SECONDS, min(limit, told - _TRAVEL_SECONDS))


class Scraper:
    """Runs collectors; ``own_samples`` gives the samples about the exporter itself."""

    def __init__(
        self,
        collectors: Sequence[Collector],
        failures: Failures,
        own_samples: Callable[[], Iterable[Sample]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._failures = failures
        self._own_samples = own_samples
        self._monotonic = monotonic
        self._collect = {collector.name: self._timed(collector) for collector in collectors}
        self._workers: dict[str, Worker[Timed]] = {
            collector.name: Worker(
                f"collect-{collector.name}", self._collect[collector.name], monotonic=monotonic
            )
            for collector in collectors
            if collector.reads_board
        }

    def scrape(
        self, names: frozenset[str] | None = None, *, deadline: float = DEADLINE_SECONDS
    ) -> list[Sample]:
        """Return all samples, or those of the metrics in ``names``.

        Only the collectors that these metrics need are run.
        """
        wanted = CATALOGUE.keys() if names is None else CATALOGUE.keys() & names
        owners = {CATALOGUE[name].collector for name in wanted}
        everything = wanted & {catalogue.COLLECTOR_SUCCESS.name, catalogue.COLLECTOR_DURATION.name}
        chosen = [name for name in self._collect if everything or name in owners]
        end = self._monotonic() + deadline
        calls: dict[str, Call[Timed]] = {}
        for name in chosen:
            if name in self._workers:
                calls[name] = self._workers[name].begin()
                calls[name].wait(_HEAD_START_SECONDS)
        samples: list[Sample] = []
        for name in chosen:
            try:
                if (call := calls.get(name)) is None:
                    reading, duration = self._collect[name]()
                else:
                    reading, duration = call.result(end - self._monotonic())
            except StuckError as error:
                reading, duration = Reading(failures=(error,)), deadline
            samples.extend(self._report(name, reading, duration))
        if SELF in owners:
            samples.extend(self._own_samples())
        return [sample for sample in samples if sample.metric.name in wanted]

    def _report(self, name: str, reading: Reading, duration: float) -> Iterable[Sample]:
        if not reading.counted:
            self._failures.report(name, (*reading.failures, *reading.tolerated), source="scrape")
        yield from reading.samples
        yield catalogue.COLLECTOR_SUCCESS.sample(not reading.failures, collector=name)
        yield catalogue.COLLECTOR_DURATION.sample(duration, collector=name)

    def _timed(self, collector: Collector) -> Callable[[], Timed]:
        def collect() -> Timed:
            begin = self._monotonic()
            try:
                reading = collector.collect()
            except Exception as error:  # noqa: BLE001 - one failure of this collector
                reading = Reading(failures=(error,))
            return reading, self._monotonic() - begin

        return collect

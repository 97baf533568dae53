"""One scrape: the wanted collectors side by side, none waiting for another.

Each collector has its own worker thread and all share one deadline, so a scrape returns in time
whatever a driver does; what did not come in time is absent and its collector unsuccessful.
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
        self._workers: dict[str, Worker[Timed]] = {
            collector.name: Worker(f"collect-{collector.name}", self._timed(collector))
            for collector in collectors
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
        calls = {
            name: worker.begin()
            for name, worker in self._workers.items()
            if everything or name in owners
        }
        end = self._monotonic() + deadline
        samples: list[Sample] = []
        for name, call in calls.items():
            samples.extend(self._finish(name, call, end - self._monotonic(), deadline))
        if SELF in owners:
            samples.extend(self._own_samples())
        return [sample for sample in samples if sample.metric.name in wanted]

    def _finish(
        self, name: str, call: Call[Timed], left: float, deadline: float
    ) -> Iterable[Sample]:
        try:
            reading, duration = call.result(left)
        except Exception as error:  # noqa: BLE001 - a collector never fails the scrape
            stuck = isinstance(error, StuckError)
            reading, duration = Reading(failures=(error,)), deadline if stuck else 0.0
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

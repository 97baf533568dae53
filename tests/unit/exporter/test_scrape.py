"""A scrape: collectors are isolated, deadlines hold, filters spare work."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from exporter import catalogue
from exporter.catalogue import Sample
from exporter.collectors import Reading
from exporter.failures import Failures
from exporter.scrape import Scraper, deadline_seconds
from tests.unit.exporter.fakes import values

POWER = catalogue.POWER_ON.sample(1, device="npu0")
STATE = catalogue.COOLING_STATE.sample(0, cooling_device="fan")


@dataclass
class FakeCollector:
    """Gives a reading, after ``gate`` opens where there is one; or raises."""

    name: str
    reading: Reading | Exception = field(default_factory=Reading)
    gate: threading.Event | None = None
    calls: int = 0
    reads_board: bool = True

    def collect(self) -> Reading:
        """Collect."""
        self.calls += 1
        if self.gate is not None:
            self.gate.wait()
        if isinstance(self.reading, Exception):
            raise self.reading
        return self.reading


def own() -> Iterator[Sample]:
    yield catalogue.SCRAPES_IN_FLIGHT.sample(1)


def success(samples: list[Sample]) -> dict[tuple[str, ...], float]:
    return values(samples, "npu_scrape_collector_success")


def test_failing_collector_hides_no_other() -> None:
    """What raises is unsuccessful, counted, and alone in it."""
    failures = Failures()
    scraper = Scraper(
        [
            FakeCollector("clock", RuntimeError("boom")),
            FakeCollector("cooling", Reading(samples=(STATE,))),
        ],
        failures,
        own,
    )
    samples = scraper.scrape()
    assert success(samples) == {("clock",): 0, ("cooling",): 1}
    assert STATE in samples
    assert failures.counts()["clock"] == 1


def test_collector_that_tells_from_memory_needs_no_thread() -> None:
    """It runs in the scrape's own thread, and its failure is isolated all the same."""
    threads = threading.active_count()
    told = FakeCollector("load", Reading(samples=(POWER,)), reads_board=False)
    broken = FakeCollector("identity", RuntimeError("boom"), reads_board=False)
    samples = Scraper([broken, told], Failures(), own).scrape()
    assert threading.active_count() == threads
    assert success(samples) == {("identity",): 0, ("load",): 1}


def test_partial_reading_keeps_its_samples() -> None:
    """A collector that misses something still delivers the rest."""
    reading = Reading(samples=(POWER,), failures=(OSError("one file"),))
    samples = Scraper([FakeCollector("clock", reading)], Failures(), own).scrape()
    assert POWER in samples
    assert success(samples) == {("clock",): 0}


def test_tolerated_failures_are_counted_and_successful() -> None:
    """A foreign sensor's fault shows in the counter only."""
    failures = Failures()
    reading = Reading(tolerated=(OSError("a"), OSError("b")))
    samples = Scraper([FakeCollector("temperature", reading)], failures, own).scrape()
    assert success(samples) == {("temperature",): 1}
    assert failures.counts()["temperature"] == 2


def test_hanging_collector_costs_one_deadline_once() -> None:
    """The rest is served; later scrapes do not wait for it again nor start threads for it."""
    gate = threading.Event()
    hanging = FakeCollector("clock", Reading(samples=(POWER,)), gate=gate)
    scraper = Scraper(
        [hanging, FakeCollector("cooling", Reading(samples=(STATE,)))], Failures(), own
    )
    try:
        for _ in range(3):
            samples = scraper.scrape(deadline=0.1)
            assert success(samples) == {("clock",): 0, ("cooling",): 1}
            assert STATE in samples
            assert POWER not in samples
        assert hanging.calls == 1
        assert values(samples, "npu_scrape_collector_duration_seconds")[("clock",)] == 0.1
    finally:
        gate.set()


def test_filter_runs_only_what_it_needs() -> None:
    """The guard's five metrics do not read the whole board."""
    clock = FakeCollector("clock", Reading(samples=(POWER,)))
    cooling = FakeCollector("cooling", Reading(samples=(STATE,)))
    scraper = Scraper([clock, cooling], Failures(), own)
    assert scraper.scrape(frozenset({"npu_power_on", "no_such_metric"})) == [POWER]
    assert (clock.calls, cooling.calls) == (1, 0)


def test_filter_for_success_runs_everything() -> None:
    """Success of a collector is known only after it ran."""
    clock = FakeCollector("clock")
    scraper = Scraper([clock], Failures(), own)
    samples = scraper.scrape(frozenset({"npu_scrape_collector_success"}))
    assert success(samples) == {("clock",): 1}
    assert len(samples) == 1


@pytest.mark.parametrize(
    ("told", "expected"),
    [("10", 2.0), ("1.5", 1.0), ("0.2", 0.1), ("-1", 2.0), ("nan", 2.0), ("soon", 2.0)],
)
def test_deadline_follows_the_scrape_timeout(told: str, expected: float) -> None:
    """Prometheus' own time-out is kept, nonsense in the header is ignored."""
    headers = {"x-prometheus-scrape-timeout-seconds": told}
    assert deadline_seconds(headers) == expected
    assert deadline_seconds({}) == 2.0

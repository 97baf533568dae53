"""A bursty hour: what the counters say, what happened, and what a gauge would have said."""

import random
import sys
from collections.abc import Iterator

import pytest

from exporter.accounting import Account
from exporter.failures import Failures
from exporter.sampler import Sampler
from npu.model import CoreLoad, Npu
from tests.unit.exporter.fakes import Clockwork, npu, watch

HOUR = 3600
SCRAPE_SECONDS = 30
Burst = tuple[float, float]


class Kernel:
    """A core that is busy in bursts, shown as the driver shows it.

    The file has the share of the last finished second, in whole percent; its seconds begin
    wherever the driver was loaded.
    """

    def __init__(self, bursts: list[Burst], *, phase: float) -> None:
        self._phase = phase
        self._shares = [0.0] * (HOUR + 3)
        for begin, end in bursts:
            for second in range(int(begin - phase), int(end - phase) + 1):
                overlap = min(end, second + 1 + phase) - max(begin, second + phase)
                self._shares[max(0, second)] += max(0.0, overlap)
        self.busy_seconds = sum(end - begin for begin, end in bursts)

    def shown(self, at: float) -> float:
        """Return what the file says."""
        return int(min(1.0, self._shares[max(0, int(at - self._phase) - 1)]) * 100) / 100


def batches(source: random.Random) -> Iterator[Burst]:
    """A batch every half minute, as long as a scrape interval: 4 to 8 busy seconds each."""
    for begin in range(20, HOUR - 20, SCRAPE_SECONDS):
        yield begin + 3.0, begin + 3.0 + source.uniform(4.0, 8.0)


def camera(source: random.Random) -> Iterator[Burst]:
    """Frames: 30 to 400 ms of work, then as long a pause or a longer one."""
    at = 2.0
    while at < HOUR - 3:
        work = source.uniform(0.03, 0.4)
        yield at, at + work
        at += work + source.choice([work, work * 2, 7.0])


def night_and_day(source: random.Random) -> Iterator[Burst]:
    """Long jobs with long pauses."""
    at = 5.0
    while at < HOUR - 400:
        work = source.uniform(20.0, 300.0)
        yield at, at + work
        at += work + source.uniform(5.0, 200.0)


@pytest.mark.parametrize("script", [batches, camera, night_and_day], ids=lambda s: s.__name__)
@pytest.mark.parametrize("seed", range(3))
def test_counters_tell_the_truth(script: object, seed: int) -> None:
    """Within one percentage point of the integral, with late samples; the gauge is printed."""
    assert callable(script)
    source = random.Random(seed)  # noqa: S311 - a reproducible load, not a secret
    kernel = Kernel(list(script(source)), phase=source.random())
    clock, account = Clockwork(0.0), Account()

    def read(_: Npu) -> tuple[CoreLoad, ...]:
        return (CoreLoad(core=0, ratio=kernel.shown(clock.now)),)

    sampler = Sampler(watch(npu()), account, read, dict, Failures(), monotonic=clock)
    gauge: list[float] = []
    for second in range(HOUR):
        clock.now = second + source.uniform(0.0, 0.2)
        sampler.step()
        if second % SCRAPE_SECONDS == 0:
            gauge.append(kernel.shown(clock.now))

    core = account.cores("npu0")[0]
    truth = kernel.busy_seconds / HOUR
    measured = core.busy_seconds / core.sampled_seconds
    naive = sum(gauge) / len(gauge)
    sys.stdout.write(f"truth {truth:.1%}, counters {measured:.1%}, gauge {naive:.1%}\n")
    assert HOUR * 0.95 < core.sampled_seconds <= HOUR
    assert measured == pytest.approx(truth, abs=0.01)
    if script is batches:
        assert abs(naive - truth) > 0.1, "a gauge in step with the work misses it"

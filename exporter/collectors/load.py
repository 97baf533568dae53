"""Load counters, as the sampler has accumulated them."""

from exporter import catalogue
from exporter.accounting import Account
from exporter.board import BoardWatch
from exporter.catalogue import Sample
from exporter.collectors import NotScannedError, Reading
from exporter.sampler import Sampler


class UnmeasuredError(Exception):
    """The load of a device is not known now."""


class LoadCollector:
    """Tells counters of present devices; no input or output happens here."""

    name = "load"
    reads_board = False

    def __init__(self, watch: BoardWatch, account: Account, sampler: Sampler) -> None:
        self._watch = watch
        self._account = account
        self._sampler = sampler

    def collect(self) -> Reading:
        """Return the counters; a device that is not being measured is a failure."""
        board = self._watch.current
        if board is None:
            raise NotScannedError
        samples: list[Sample] = []
        failures: list[Exception] = []
        for npu in board.inventory.npus:
            problem = self._sampler.problem(npu.id)
            if problem is not None:
                failures.append(UnmeasuredError(problem))
            samples.append(catalogue.UP.sample(problem is None, device=npu.id))
            if npu.load_is_estimate:
                samples.append(catalogue.LOAD_ESTIMATED.sample(1, device=npu.id))
            samples.extend(self._counters(npu.id))
        samples.extend(
            catalogue.LAST_SAMPLE.sample(seen.sampled_unix, device=device)
            for device, seen in sorted(self._sampler.seen().items())
            if seen.sampled_unix is not None
        )
        return Reading(samples=tuple(samples), failures=tuple(failures), counted=True)

    def _counters(self, device: str) -> list[Sample]:
        samples = [
            catalogue.LOAD_OUT_OF_RANGE.sample(self._account.out_of_range(device), device=device)
        ]
        for number, core in sorted(self._account.cores(device).items()):
            labels = {"device": device, "core": str(number)}
            samples.append(catalogue.CORE_BUSY.sample(core.busy_seconds, **labels))
            samples.append(catalogue.CORE_SAMPLED.sample(core.sampled_seconds, **labels))
        return samples

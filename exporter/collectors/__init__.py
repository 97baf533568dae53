"""Collectors: each turns one source into samples. They do not know Prometheus."""

from dataclasses import dataclass
from typing import Protocol

from exporter.catalogue import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one collector read in one scrape.

    ``failures`` make the collector unsuccessful: something it should deliver is missing.
    ``tolerated`` ones are counted and logged only, for example a broken sensor of another unit.
    ``counted`` tells that the background loop behind the collector has counted them already.
    """

    samples: tuple[Sample, ...] = ()
    failures: tuple[Exception, ...] = ()
    tolerated: tuple[Exception, ...] = ()
    counted: bool = False


class Collector(Protocol):
    """A source of samples; ``name`` is its label value in the metrics.

    ``reads_board`` tells that collecting opens files of the board, which may hang.
    """

    name: str
    reads_board: bool

    def collect(self) -> Reading:
        """Read now; what it raises is one failure and no samples."""
        ...


class NotScannedError(Exception):
    """The board has not been looked at yet."""

    def __init__(self) -> None:
        super().__init__("the board has not been scanned yet")

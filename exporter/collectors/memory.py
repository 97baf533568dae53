"""Contiguous memory (CMA), which NPU drivers without an IOMMU allocate from."""

import re
from collections.abc import Callable

from exporter import catalogue
from exporter.catalogue import Sample
from exporter.collectors import Reading
from npu.errors import MissingError

MEMINFO = "/proc/meminfo"
_LINE = re.compile(r"^(CmaTotal|CmaFree):\s*(\d{1,15}) kB$", re.MULTILINE)
_METRICS = {"CmaTotal": catalogue.CMA_SIZE, "CmaFree": catalogue.CMA_FREE}


def cma_samples(meminfo: str) -> list[Sample]:
    """Return the samples for the text of ``/proc/meminfo``; none where the kernel has no CMA."""
    kibibytes = {name: int(number) for name, number in _LINE.findall(meminfo)}
    if not kibibytes.get("CmaTotal"):
        return []
    return [_METRICS[name].sample(number * 1024) for name, number in kibibytes.items()]


class MemoryCollector:
    """Reads the board's ``/proc/meminfo``."""

    name = "memory"
    reads_board = True

    def __init__(self, read_text: Callable[[str], str]) -> None:
        self._read_text = read_text

    def collect(self) -> Reading:
        """Read now; a board whose ``/proc`` is not mounted has no such reading by design."""
        try:
            text = self._read_text(MEMINFO)
        except MissingError:
            return Reading()
        return Reading(samples=tuple(cma_samples(text)))

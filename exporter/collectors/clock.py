"""Clock and power state. Reading either does not wake the NPU."""

from typing import Protocol

from exporter import catalogue
from exporter.board import BoardWatch
from exporter.catalogue import Sample
from exporter.collectors import NotScannedError, Reading
from npu.model import Clock, Npu


class ClockSource(Protocol):
    """Reads clock and power of one NPU."""

    def clock(self, npu: Npu) -> Clock:
        """Read the clock; fields are None where they cannot be read."""
        ...

    def powered(self, npu: Npu) -> bool | None:
        """Tell whether the power domain is on, None where that cannot be read."""
        ...


class ClockCollector:
    """Reads clock and power of every NPU."""

    name = "clock"
    reads_board = True

    def __init__(self, watch: BoardWatch, source: ClockSource) -> None:
        self._watch = watch
        self._source = source

    def collect(self) -> Reading:
        """Read now; one device never hides another."""
        board = self._watch.current
        if board is None:
            raise NotScannedError
        samples: list[Sample] = []
        failures: list[Exception] = []
        for npu in board.inventory.npus:
            try:
                samples.extend(self._device(npu))
            except Exception as error:  # noqa: BLE001 - reported, with the device's other siblings kept
                failures.append(error)
        return Reading(samples=tuple(samples), failures=tuple(failures))

    def _device(self, npu: Npu) -> list[Sample]:
        clock = self._source.clock(npu)
        values = (
            (catalogue.POWER_ON, self._source.powered(npu)),
            (catalogue.FREQUENCY, clock.current_hertz),
            (catalogue.FREQUENCY_MIN, clock.minimum_hertz),
            (catalogue.FREQUENCY_MAX, clock.maximum_hertz),
            (catalogue.FREQUENCY_HARDWARE_MAX, clock.hardware_maximum_hertz),
        )
        return [
            metric.sample(value, device=npu.id) for metric, value in values if value is not None
        ]

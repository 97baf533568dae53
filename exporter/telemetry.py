"""What only ``npu-smi`` tells about Ascend chips, asked every few seconds.

It is asked for all chips at once, and its answer kept for a bounded time.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from exporter.board import BoardWatch
from exporter.failures import Failures
from npu.drivers.ascend import AscendDriver
from npu.drivers.ascend_smi import ChipReading, attribute, parse
from npu.errors import NpuError
from npu.model import CoreLoad, Npu

PERIOD_SECONDS: Final = 5.0
#: A reading that is older says nothing about now.
FRESH_SECONDS: Final = 20.0
_FULL_PERCENT = 100.0


class TelemetryError(NpuError):
    """``npu-smi`` gave no usable answer, or none for one chip."""

    reason = "telemetry"


class Program(Protocol):
    """Gives the text of ``npu-smi info``; raises TelemetryError."""

    def __call__(self) -> str:
        """Run the program."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The newest good answer: ``at`` monotonic, ``unix`` for people; by device.

    ``unattributed`` counts chips that the tool shows and that are no device of this board.
    """

    at: float
    unix: float
    chips: Mapping[str, ChipReading] = field(default_factory=dict)
    unattributed: int = 0


class TelemetryWatch:
    """Keeps the newest answer; runs nothing on a board without an Ascend chip.

    ``program`` is None where telemetry is off. ``error`` is why the newest attempt failed.
    """

    def __init__(
        self,
        program: Program | None,
        watch: BoardWatch,
        failures: Failures,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        self._program = program
        self._watch = watch
        self._failures = failures
        self._monotonic = monotonic
        self._unix_time = unix_time
        self.answer: Answer | None = None
        self.error: Exception | None = None

    def step(self) -> None:
        """Ask the program, if there is somebody to ask about."""
        npus = self.npus()
        if self._program is None or not npus:
            self.answer = self.error = None
            return
        at = self._monotonic()
        try:
            readings = parse(self._program())
            if not readings:
                raise TelemetryError("npu-smi shows no chip")
        except NpuError as error:
            self.error = error
            self._failures.report("telemetry", [error])
            return
        chips, unattributed = attribute(readings, npus)
        self.answer = Answer(at=at, unix=self._unix_time(), chips=chips, unattributed=unattributed)
        self.error = None
        self._failures.report("telemetry", [])

    @property
    def on(self) -> bool:
        """Whether telemetry is asked for."""
        return self._program is not None

    def npus(self) -> Sequence[Npu]:
        """Return the Ascend chips of the board."""
        board = self._watch.current
        if board is None:
            return ()
        return [npu for npu in board.inventory.npus if npu.driver == AscendDriver.name]

    def chip(self, device: str) -> ChipReading | None:
        """Return the reading of a device, None where there is none that speaks for now."""
        answer = self.answer
        if answer is None or self._monotonic() - answer.at > FRESH_SECONDS:
            return None
        return answer.chips.get(device)

    def celsius(self) -> dict[str, float]:
        """Return the temperatures that are known now, by device."""
        found = ((npu.id, self.chip(npu.id)) for npu in self.npus())
        return {
            device: chip.celsius
            for device, chip in found
            if chip is not None and chip.celsius is not None
        }

    def load(self, npu: Npu) -> tuple[CoreLoad, ...]:
        """Return the load of the AI cores as one; nothing where telemetry is off.

        A reading speaks for the time until the next one. Raises TelemetryError where it is not
        known.
        """
        if not self.on:
            return ()
        chip = self.chip(npu.id)
        if chip is None or chip.percent is None:
            raise (
                self.error
                if isinstance(self.error, TelemetryError)
                else TelemetryError(f"npu-smi tells no load of {npu.id}")
            )
        return (
            CoreLoad(
                core=0,
                ratio=min(chip.percent, _FULL_PERCENT) / _FULL_PERCENT,
                clamped=chip.percent > _FULL_PERCENT,
            ),
        )

"""Ascend chips of a simulated board: each has its own load and heat. Pure.

What they do is told by the table of the board's ``npu-smi``, as on a real one.
"""

import random
from collections.abc import Iterable

from kubelet.podresources import PodDevices
from npu.catalogue import Board, Chips, Simulation
from npu.drivers.ascend import part_of
from npu.ids import device_of
from npu.layout import chip_count
from npu.smi_table import TABLE_PATH, ChipState, render
from npu.thermal_model import ThermalState, step, temperature_celsius
from simulator.board import Window
from simulator.control import Control
from simulator.settings import Settings

_CHIP = "davinci"
_PART = "vdavinci"


class AscendBoard:
    """The chips of one board. A control file's ``load`` has one ratio per chip."""

    def __init__(
        self, board: Board, simulation: Simulation, chips: Chips, settings: Settings
    ) -> None:
        self._heating = simulation.heating
        self._chips = chips
        self._settings = settings
        self._random = random.Random(settings.seed)  # noqa: S311 (a repeatable load, no secret)
        self._heat = [ThermalState() for _ in range(chip_count(board))]

    def window_for(self, held: Iterable[PodDevices], control: Control, dt_seconds: float) -> Window:
        """Return the second that just passed; ``dt_seconds`` is for heat only."""
        settings = self._settings
        ambient = _first(control.ambient_celsius, settings.ambient_celsius)
        percents = self._percents(busy_chips(held), control)
        states: list[ChipState] = []
        for chip, percent in enumerate(percents):
            self._heat[chip] = step(
                self._heating,
                self._heat[chip],
                dt_seconds=dt_seconds,
                load_ratio=percent / 100,
                ambient_celsius=ambient,
                speed=_first(control.speed, settings.speed),
            )
            celsius = temperature_celsius(self._heating, self._heat[chip], ambient)
            states.append(ChipState(celsius=_first(control.celsius, celsius), percent=percent))
        return Window(
            percents=percents,
            celsius=max((state.celsius for state in states), default=ambient),
            ambient_celsius=ambient,
            capped=False,
            files={TABLE_PATH: render(self._chips, states)},
        )

    def _percents(self, busy: set[int], control: Control) -> tuple[int, ...]:
        count = len(self._heat)
        if control.load is not None:
            given = control.load[:count]
            return tuple(round(100 * ratio) for ratio in given) + (0,) * (count - len(given))
        ratio = _first(control.busy_ratio, self._settings.busy_ratio)
        jitter = self._settings.busy_jitter_ratio
        return tuple(
            round(100 * min(1.0, max(0.0, ratio + self._random.uniform(-jitter, jitter))))
            if chip in busy
            else 0
            for chip in range(count)
        )


def busy_chips(held: Iterable[PodDevices]) -> set[int]:
    """Return the chips that containers hold, whole or by parts."""
    found: set[int] = set()
    for entry in held:
        for identifier in entry.device_ids:
            try:
                device = device_of(identifier)
            except ValueError:
                continue
            if device.startswith(_PART):
                found.add(part_of(int(device.removeprefix(_PART))))
            elif device.startswith(_CHIP):
                found.add(int(device.removeprefix(_CHIP)))
    return found


def _first(given: float | None, default: float) -> float:
    return default if given is None else given

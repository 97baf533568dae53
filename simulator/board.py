"""The moving parts of a simulated board, one window of a second at a time. Pure."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kubelet.podresources import PodDevices
from npu.catalogue import Board, RuntimePower, Simulation
from npu.ids import device_of
from npu.layout import clock_path, runtime_files, zone_temperature_path
from npu.thermal_model import (
    ThermalState,
    governed,
    sensor_millicelsius,
    step,
    temperature_celsius,
)
from simulator.control import Control
from simulator.settings import Settings

#: The driver keeps the power domain on for three seconds after the last job (``delayms``).
_POWER_TAIL_WINDOWS = 3
_DEVICE = "npu0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One second of a board: load in percent per core, temperature, and the files that say so."""

    percents: tuple[int, ...]
    celsius: float
    ambient_celsius: float
    capped: bool
    files: dict[str, bytes]


class SimulatedBoard:
    """A board with a state: heat, power, and a seeded generator for the load."""

    def __init__(self, board: Board, simulation: Simulation, settings: Settings) -> None:
        self._board = board
        self._simulation = simulation
        self._settings = settings
        self._random = random.Random(settings.seed)  # noqa: S311 (a repeatable load, no secret)
        self._heat = ThermalState()
        #: Highest clock that somebody allows (devfreq's ``max_freq``), None where nobody says.
        self.limit_hertz: int | None = None
        self._quiet_windows = _POWER_TAIL_WINDOWS
        self._active = [
            _milliseconds(board, unit, lambda power: power.active_milliseconds)
            for unit in simulation.runtime
        ]
        self._suspended = [
            _milliseconds(board, unit, lambda power: power.suspended_milliseconds)
            for unit in simulation.runtime
        ]

    @property
    def cores(self) -> int:
        """Number of cores."""
        return self._simulation.cores

    @property
    def clocked_unit(self) -> str | None:
        """The device whose clock moves, None where no file tells a clock."""
        return self._simulation.clock

    def window_for(self, held: Iterable[PodDevices], control: Control, dt_seconds: float) -> Window:
        """Return the second that just passed, with the cores in use that containers hold."""
        return self.window(busy_cores(held, self.cores), control, dt_seconds)

    def window(self, busy_cores: int, control: Control, dt_seconds: float) -> Window:
        """Return the second that just passed, with ``busy_cores`` in use.

        ``dt_seconds`` is the time since the last window, for heat only: a window is a second.
        """
        percents = self._percents(busy_cores, control)
        ambient = _first(control.ambient_celsius, self._settings.ambient_celsius)
        heating = self._simulation.heating
        self._heat = step(
            heating,
            self._heat,
            dt_seconds=dt_seconds,
            load_ratio=sum(percents) / len(percents) / 100,
            ambient_celsius=ambient,
            speed=_first(control.speed, self._settings.speed),
            clock_ratio=self._clock_ratio(),
        )
        celsius = _first(control.celsius, temperature_celsius(heating, self._heat, ambient))
        self._heat = governed(
            heating, self._heat, ambient_celsius=ambient, measured_celsius=celsius
        )
        self._quiet_windows = 0 if any(percents) else self._quiet_windows + 1
        return Window(
            percents=percents,
            celsius=celsius,
            ambient_celsius=ambient,
            capped=self._heat.capped,
            files=self._files(percents, celsius, ambient) | self._runtime(percents, dt_seconds),
        )

    def _percents(self, busy_cores: int, control: Control) -> tuple[int, ...]:
        if control.load is not None:
            given = control.load[: self.cores]
            return tuple(round(100 * ratio) for ratio in given) + (0,) * (self.cores - len(given))
        busy = _first(control.busy_ratio, self._settings.busy_ratio)
        jitter = self._settings.busy_jitter_ratio
        return tuple(
            round(100 * min(1.0, max(0.0, busy + self._random.uniform(-jitter, jitter))))
            if core < busy_cores
            else 0
            for core in range(self.cores)
        )

    def _files(
        self, percents: Sequence[int], celsius: float, ambient_celsius: float
    ) -> dict[str, bytes]:
        simulation = self._simulation
        files = {path: load_line(percents) for path in simulation.load}
        powered = b"on\n" if self._quiet_windows < _POWER_TAIL_WINDOWS else b"off\n"
        files.update(dict.fromkeys(simulation.power, powered))
        for index, zone in enumerate(self._board.zones):
            shown = ambient_celsius + zone.coupling * (celsius - ambient_celsius)
            files[zone_temperature_path(index)] = b"%d\n" % sensor_millicelsius(shown)
        if simulation.clock is not None:
            files[clock_path(simulation.clock)] = b"%d\n" % self._hertz(simulation.clock)
        return files

    def _runtime(self, percents: Sequence[int], dt_seconds: float) -> dict[str, bytes]:
        """Return the files of cores whose active time tells their load, counted on."""
        files: dict[str, bytes] = {}
        for core, unit in enumerate(self._simulation.runtime):
            self._active[core] += dt_seconds * 10 * percents[core]
            self._suspended[core] += dt_seconds * 10 * (100 - percents[core])
            status = "active" if percents[core] else "suspended"
            files |= runtime_files(
                unit, status, round(self._active[core]), round(self._suspended[core])
            )
        return files

    def _hertz(self, unit: str) -> int:
        full = self._full_hertz(unit)
        governor = self._simulation.heating.governor
        hertz = min(full, governor.capped_hertz) if governor and self._heat.capped else full
        return hertz if self.limit_hertz is None else min(hertz, self.limit_hertz)

    def _full_hertz(self, unit: str) -> int:
        devfreq = self._board.devices[unit].devfreq
        return 0 if devfreq is None else devfreq.current

    def _clock_ratio(self) -> float:
        unit, limit = self._simulation.clock, self.limit_hertz
        full = 0 if unit is None else self._full_hertz(unit)
        return 1.0 if limit is None or limit >= full else limit / full


def _milliseconds(board: Board, unit: str, of: Callable[[RuntimePower], int]) -> float:
    # A captured board has its devices as plain files.
    device = board.devices.get(unit)
    power = None if device is None else device.power
    return 0.0 if power is None else float(of(power))


def load_line(percents: Sequence[int]) -> bytes:
    """Return the content of the vendor driver's ``load``."""
    if len(percents) == 1:
        return b"NPU load: %2d%%\n" % percents[0]
    cores = (b" Core%d: %2d%%," % (core, percent) for core, percent in enumerate(percents))
    return b"NPU load: " + b"".join(cores) + b"\n"


def busy_cores(held: Iterable[PodDevices], cores: int) -> int:
    """Return how many cores work: all for a whole device, one for each slot of a shared one.

    Devices are recognised by their identifiers, whatever the resource is called here.
    """
    slots: set[str] = set()
    for entry in held:
        for identifier in entry.device_ids:
            try:
                device = device_of(identifier)
            except ValueError:
                continue
            if device == _DEVICE:
                if identifier == device:
                    return cores
                slots.add(identifier)
    return min(cores, len(slots))


def _first(given: float | None, default: float) -> float:
    return default if given is None else given

"""The heat of this board's devices, by the plugin's own readings.

The guard judges the same by what the exporter tells; this works while both, the network and the API
server are down. Temperatures, times and states are the guard's.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from daemon.logs import fields
from npu import heat, names, thermal
from npu.errors import MissingError, NpuError
from npu.heat import Machine, Reading
from npu.host import Host
from npu.model import CoolingDevice, Npu, ThermalZone
from npu.registry import Driver
from npu.thresholds import Settings, Thresholds, Trip
from plugin.limiter import Limit, Pace, advance

log = logging.getLogger(__name__)

#: Zones are listed anew this often; their trip points can be written by hand.
_ZONES_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heated:
    """What is known about the heat of one device, of how many slots, by which thresholds."""

    machine: Machine
    limit: Limit
    slots: int
    thresholds: Thresholds

    @property
    def allowed(self) -> int:
        """How many slots may be in use or on offer."""
        return self.slots if self.limit.slots is None else self.limit.slots


class Thermometer:
    """Reads and judges at every :meth:`step`. Devices without a sensor are not limited.

    ``driver_of`` gives the driver of a device, ``slots`` into how many slots it is divided.
    ``interval_seconds`` is the time between two steps.
    """

    def __init__(
        self,
        host: Host,
        settings: Settings,
        *,
        driver_of: Callable[[Npu], Driver],
        slots: Callable[[Npu], int],
        interval_seconds: float,
        pace: Pace,
    ) -> None:
        self._host = host
        timing = settings.timing.for_interval(interval_seconds)
        self._settings = msgspec.structs.replace(settings, timing=timing)
        self._driver_of = driver_of
        self._slots = slots
        self._pace = pace
        self._zones: tuple[ThermalZone, ...] = ()
        self._zones_at: float | None = None
        self.heated: Mapping[str, Heated] = {}

    def step(self, npus: Iterable[Npu], now: float) -> None:
        """Read every device once, at monotonic time ``now``; a sensor that vanished is missed."""
        judged = [npu for npu in npus if npu.zone is not None or npu.id in self.heated]
        if not judged:
            self.heated = {}
            return
        if self._zones_at is None or now - self._zones_at >= _ZONES_SECONDS:
            self._zones, self._zones_at = thermal.zones(self._host), now
        mitigating = _mitigating(thermal.cooling_devices(self._host))
        simulated = self._host.exists(names.SIMULATED_MARKER)
        self.heated = {
            npu.id: self._judge(npu, now, mitigating=mitigating, simulated=simulated)
            for npu in judged
        }

    def limits(self) -> dict[str, Limit]:
        """Return the limits that are in force, by device."""
        return {
            device: heated.limit
            for device, heated in self.heated.items()
            if heated.limit.slots is not None
        }

    def _judge(self, npu: Npu, now: float, *, mitigating: bool | None, simulated: bool) -> Heated:
        trips = [
            Trip(zone=zone.type, kind=trip.kind, celsius=trip.millicelsius / 1000)
            for zone in self._zones
            for trip in zone.trips
        ]
        limits = self._settings.resolve(model=npu.model, trips=trips, simulated=simulated)
        before = self.heated.get(npu.id)
        machine = heat.start(now) if before is None else before.machine
        machine, transition = heat.step(
            machine, self._read(npu, mitigating=mitigating), now, limits
        )
        if transition is not None:
            worse = heat.severity(transition.target) >= heat.severity(heat.Heat.HOT)
            log.log(
                logging.WARNING if worse else logging.INFO,
                "Device %s is %s",
                npu.id,
                transition.target,
                extra=fields(
                    device=npu.id,
                    before=transition.source,
                    reason=transition.reason,
                    celsius=rounded(transition.celsius),
                ),
            )
        slots = self._slots(npu)
        old = Limit() if before is None else before.limit
        limit = advance(old, machine, slots=slots, limits=limits, pace=self._pace, now=now)
        if limit.slots != old.slots:
            log.info(
                "Device %s may have %d of %d slots",
                npu.id,
                slots if limit.slots is None else limit.slots,
                slots,
                extra=fields(device=npu.id, reason=limit.reason, celsius=rounded(machine.celsius)),
            )
        return Heated(machine=machine, limit=limit, slots=slots, thresholds=limits)

    def _read(self, npu: Npu, *, mitigating: bool | None) -> Reading:
        driver = self._driver_of(npu)
        clock = driver.clock(self._host, npu).current_hertz
        return Reading(
            celsius=self._celsius(npu),
            clock_hertz=None if clock is None else float(clock),
            busy_ratio=self._busy(driver, npu),
            mitigating=mitigating,
        )

    def _celsius(self, npu: Npu) -> float | None:
        zone = next((zone for zone in self._zones if zone.type == npu.zone), None)
        if zone is None:
            self._zones_at = None
            return None
        try:
            return thermal.millicelsius(self._host, zone) / 1000
        except MissingError:
            # Zones were numbered anew: they are listed again at the next step.
            self._zones_at = None
            return None
        except NpuError:
            return None

    def _busy(self, driver: Driver, npu: Npu) -> float | None:
        try:
            loads = [core.ratio for core in driver.load(self._host, npu)]
        except NpuError:
            return None
        # The busiest core counts, because all cores share one clock.
        return max(loads, default=None)


def _mitigating(devices: Iterable[CoolingDevice]) -> bool | None:
    """Tell whether something but a fan cools, None where nothing but fans was seen."""
    states = [device.state for device in devices if not device.is_fan]
    return any(state > 0 for state in states) if states else None


def rounded(celsius: float | None) -> float | None:
    """Return a temperature as people read it."""
    return None if celsius is None else round(celsius, 1)

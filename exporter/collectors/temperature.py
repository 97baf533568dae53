"""Temperatures: the one each device is judged by, every zone, and the kernel's limits."""

import threading
from collections.abc import Callable, Mapping

from exporter import catalogue
from exporter.board import BoardWatch
from exporter.catalogue import Sample
from exporter.collectors import NotScannedError, Reading
from exporter.names import sensor_names, trip_names
from npu.errors import ImplausibleError, NpuError
from npu.model import ThermalZone

#: Zone of a temperature that a chip tells of itself.
CHIP_ZONE = "chip"


class NoZoneError(Exception):
    """The thermal zone that a device is judged by is not there any more."""


class TemperatureCollector:
    """Reads every thermal zone; one that fails is absent and hides no other.

    ``chips`` gives temperatures in °C of devices that have a sensor of their own and no zone.
    """

    name = "temperature"
    reads_board = True

    def __init__(
        self,
        watch: BoardWatch,
        millicelsius: Callable[[ThermalZone], int],
        chips: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._watch = watch
        self._millicelsius = millicelsius
        self._chips = chips
        self._lock = threading.Lock()
        self._implausible = 0

    def collect(self) -> Reading:
        """Read now. Failing to read a zone that no device is judged by is tolerated."""
        board = self._watch.current
        if board is None:
            raise NotScannedError
        tolerated: list[Exception] = []
        names = sensor_names((zone.type for zone in board.zones), tolerated)
        # Of several zones of one type the first is judged, and it is the one that keeps its name.
        named: dict[str, str] = {}
        for zone, name in zip(board.zones, names, strict=True):
            named.setdefault(zone.type, name)
        judged = {npu.zone for npu in board.inventory.npus if npu.zone is not None}
        celsius: dict[str, float] = {}
        samples: list[Sample] = []
        failures: list[Exception] = []
        for zone, name in zip(board.zones, names, strict=True):
            samples.extend(_limits(zone, name))
            try:
                celsius[name] = self._millicelsius(zone) / 1000
            except NpuError as error:
                self._note(error)
                essential = zone.type in judged and named[zone.type] == name
                (failures if essential else tolerated).append(error)
            else:
                samples.append(catalogue.ZONE_TEMPERATURE.sample(celsius[name], zone=name))
        failures.extend(
            NoZoneError(f"thermal zone {zone} is gone") for zone in sorted(judged - named.keys())
        )
        for npu in board.inventory.npus:
            label = None if npu.zone is None else named.get(npu.zone)
            if label in celsius:
                samples.append(
                    catalogue.TEMPERATURE.sample(celsius[label], device=npu.id, zone=label)
                )
        samples.extend(
            catalogue.TEMPERATURE.sample(value, device=device, zone=CHIP_ZONE)
            for device, value in self._chips().items()
        )
        samples.append(catalogue.TEMPERATURE_IMPLAUSIBLE.sample(self._implausible))
        return Reading(samples=tuple(samples), failures=tuple(failures), tolerated=tuple(tolerated))

    def _note(self, error: NpuError) -> None:
        if isinstance(error, ImplausibleError):
            with self._lock:
                self._implausible += 1


def _limits(zone: ThermalZone, name: str) -> list[Sample]:
    """Return the zone's trip points; some kernels print 0 for one that is switched off."""
    trips = [trip for trip in zone.trips if trip.millicelsius > 0]
    return [
        catalogue.TEMPERATURE_LIMIT.sample(trip.millicelsius / 1000, zone=name, trip=label)
        for trip, label in zip(trips, trip_names(trips), strict=True)
    ]

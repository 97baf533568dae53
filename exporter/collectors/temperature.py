"""Temperatures: the one each device is judged by, every zone, and the kernel's limits."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from exporter import catalogue
from exporter.board import BoardWatch
from exporter.catalogue import Sample
from exporter.collectors import NotScannedError, Reading
from npu.errors import ImplausibleError, NpuError
from npu.model import ThermalZone, TripPoint

#: Zone of a temperature that a chip tells of itself.
CHIP_ZONE = "chip"


class NoZoneError(Exception):
    """The thermal zone that a device is judged by is not there any more."""


def unique_names(names: Iterable[str]) -> list[str]:
    """Return ``names`` with repeated ones told apart: the second ``gpu`` is ``gpu-2``.

    The kernel allows several zones of one type, and a series must not appear twice.
    """
    seen: Counter[str] = Counter()
    taken: set[str] = set()
    unique: list[str] = []
    for name in names:
        seen[name] += 1
        candidate = name if seen[name] == 1 else f"{name}-{seen[name]}"
        while candidate in taken:
            seen[name] += 1
            candidate = f"{name}-{seen[name]}"
        taken.add(candidate)
        unique.append(candidate)
    return unique


def trip_names(trips: Sequence[TripPoint]) -> list[str]:
    """Return a label value per trip point: its kind, numbered where a kind occurs repeatedly."""
    totals = Counter(trip.kind for trip in trips)
    seen: Counter[str] = Counter()
    labels: list[str] = []
    for trip in trips:
        several = totals[trip.kind] > 1
        labels.append(f"{trip.kind}-{seen[trip.kind]}" if several else trip.kind)
        seen[trip.kind] += 1
    return labels


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
        names = unique_names(zone.type for zone in board.zones)
        judged = {npu.zone for npu in board.inventory.npus if npu.zone is not None}
        celsius: dict[str, float] = {}
        samples: list[Sample] = []
        failures: list[Exception] = []
        tolerated: list[Exception] = []
        for zone, name in zip(board.zones, names, strict=True):
            samples.extend(_limits(zone, name))
            try:
                celsius[name] = self._millicelsius(zone) / 1000
            except NpuError as error:
                self._note(error)
                (failures if name in judged else tolerated).append(error)
            else:
                samples.append(catalogue.ZONE_TEMPERATURE.sample(celsius[name], zone=name))
        failures.extend(
            NoZoneError(f"thermal zone {name} is gone") for name in sorted(judged - set(names))
        )
        samples.extend(
            catalogue.TEMPERATURE.sample(celsius[npu.zone], device=npu.id, zone=npu.zone)
            for npu in board.inventory.npus
            if npu.zone in celsius
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

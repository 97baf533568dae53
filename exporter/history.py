"""The last minutes of every device, for the page that people look at.

Prometheus keeps history for everybody else; this is for the person who stands before one board and
may have no Prometheus. It lives in memory and ends with the process.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from exporter.accounting import Account
from exporter.board import BoardWatch
from exporter.worker import Worker
from npu.errors import NpuError
from npu.model import Npu, ThermalZone

PERIOD_SECONDS: Final = 5.0
#: Ten minutes.
POINTS: Final = 120
_READ_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One device at one moment; ``at`` is monotonic.

    ``load`` is the busy share of all cores since the point before, 0 to 1; ``celsius`` the judged
    temperature. What is not known is None.
    """

    at: float
    load: float | None
    celsius: float | None


@dataclass(slots=True)
class _Device:
    points: deque[Point] = field(default_factory=lambda: deque(maxlen=POINTS))
    busy_seconds: float = 0.0
    sampled_seconds: float = 0.0


class History:
    """Notes load and temperature of each present device at every step.

    ``millicelsius`` reads a zone, raising NpuError; ``chips`` gives the temperatures of devices
    that tell it themselves. Failures are gaps here; they are counted and logged where they are
    scraped.
    """

    def __init__(
        self,
        watch: BoardWatch,
        account: Account,
        millicelsius: Callable[[ThermalZone], int],
        chips: Callable[[], Mapping[str, float]] = dict,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watch = watch
        self._account = account
        self._millicelsius = millicelsius
        self._chips = chips
        self._monotonic = monotonic
        self._worker = Worker("history", self._temperatures, monotonic=monotonic)
        self._devices: dict[str, _Device] = {}

    def step(self) -> None:
        """Note the present; a board that has lost a device forgets its past."""
        board = self._watch.current
        npus = () if board is None else board.inventory.npus
        try:
            celsius = self._worker.call(_READ_SECONDS) if npus else {}
        except Exception:  # noqa: BLE001 - a gap; the temperature collector tells why
            celsius = {}
        kept = {npu.id: self._devices.get(npu.id, _Device()) for npu in npus}
        at = self._monotonic()
        for npu in npus:
            device = kept[npu.id]
            point = Point(at=at, load=self._load(npu.id, device), celsius=celsius.get(npu.id))
            device.points.append(point)
        self._devices = kept

    def points(self, device: str) -> tuple[Point, ...]:
        """Return the points of ``device``, oldest first."""
        found = self._devices.get(device)
        return () if found is None else tuple(found.points)

    def _load(self, identifier: str, device: _Device) -> float | None:
        cores = self._account.cores(identifier).values()
        busy = sum(core.busy_seconds for core in cores)
        sampled = sum(core.sampled_seconds for core in cores)
        covered = sampled - device.sampled_seconds
        share = (busy - device.busy_seconds) / covered if covered > 0 else None
        device.busy_seconds, device.sampled_seconds = busy, sampled
        return share

    def _temperatures(self) -> dict[str, float]:
        board = self._watch.current
        if board is None:
            return {}
        zones: dict[str, ThermalZone] = {}
        for zone in board.zones:
            zones.setdefault(zone.type, zone)
        found = dict(self._chips())
        for npu in board.inventory.npus:
            value = self._read(npu, zones)
            if value is not None:
                found[npu.id] = value
        return found

    def _read(self, npu: Npu, zones: dict[str, ThermalZone]) -> float | None:
        zone = None if npu.zone is None else zones.get(npu.zone)
        if zone is None:
            return None
        try:
            return self._millicelsius(zone) / 1000
        except NpuError:
            return None

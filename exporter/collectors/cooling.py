"""Cooling devices and the throttle step in force."""

from collections.abc import Callable, Sequence

from exporter import catalogue
from exporter.collectors import Reading
from exporter.names import sensor_names
from npu.model import CoolingDevice


class CoolingCollector:
    """Reads every cooling device that can be read."""

    name = "cooling"
    reads_board = True

    def __init__(self, cooling_devices: Callable[[], Sequence[CoolingDevice]]) -> None:
        self._cooling_devices = cooling_devices

    def collect(self) -> Reading:
        """Read now; a board without cooling devices has none by design."""
        devices = self._cooling_devices()
        cut: list[Exception] = []
        named = list(zip(devices, sensor_names((d.type for d in devices), cut), strict=True))
        states = [
            catalogue.COOLING_STATE.sample(device.state, cooling_device=name)
            for device, name in named
        ]
        limits = [
            catalogue.COOLING_MAX_STATE.sample(device.maximum_state, cooling_device=name)
            for device, name in named
        ]
        return Reading(samples=(*states, *limits), tolerated=tuple(cut))

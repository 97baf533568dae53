"""Thermal zones and cooling devices (``/sys/class/thermal``).

Zones are identified by ``type``; their order differs between boards and kernels. See
``Documentation/driver-api/thermal/sysfs-api.rst`` of the kernel.
"""

import errno
import re

from npu.errors import ImplausibleError, MissingError, NpuError
from npu.host import Host
from npu.model import CoolingDevice, ThermalZone, TripPoint, Vendor

CLASS = "/sys/class/thermal"

#: What a sensor can show on a board that runs; wrong conversion tables gave values beyond it.
LOWEST_MILLICELSIUS = -20_000
HIGHEST_MILLICELSIUS = 130_000

#: Trip points are set by people and tables; beyond this there is none (some kernels print -274000).
_TRIP_MILLICELSIUS = range(-40_000, 250_001)
#: Longest type that is kept; the kernel cuts its own at 19 characters.
_KIND_LENGTH = 64

_ZONE = re.compile(r"thermal_zone([0-9]{1,4})")
_COOLING = re.compile(r"cooling_device([0-9]{1,4})")
_TRIP_KINDS = frozenset({"active", "passive", "hot", "critical"})
_TRIP = re.compile(r"trip_point_([0-9]{1,3})_type")

#: Zone types that tell about the NPU, best first: its own sensor, then the whole chip's. RK3566 and
#: RK3568 have no sensor at the NPU.
_JUDGED: dict[Vendor, tuple[str, ...]] = {
    "rockchip": ("npu-thermal", "soc-thermal", "package-thermal", "cpu-thermal"),
    "huawei": (),
}
_NPU_ZONE = "npu-thermal"


def zones(host: Host) -> tuple[ThermalZone, ...]:
    """Return the zones by index; one that cannot be read is left out."""
    found: list[ThermalZone] = []
    for index, path in _entries(host, _ZONE):
        try:
            kind = _kind(host, path)
        except NpuError:
            continue
        if kind:
            found.append(ThermalZone(index=index, type=kind, trips=_trips(host, path)))
    return tuple(found)


def judged_zone(found: tuple[ThermalZone, ...], vendor: Vendor) -> ThermalZone | None:
    """Return the zone by which heat of a vendor's NPU is judged, None where there is none."""
    for kind in _JUDGED[vendor]:
        for zone in found:
            if _hyphenated(zone.type) == kind:
                return zone
    return None


def is_npu_zone(zone: ThermalZone) -> bool:
    """Tell whether the zone's sensor sits at the NPU; otherwise it stands for the whole chip."""
    return _hyphenated(zone.type) == _NPU_ZONE


def _hyphenated(kind: str) -> str:
    """Return a zone type as most kernels write it; it is a node name of the device tree."""
    return kind.replace("_", "-")


def millicelsius(host: Host, zone: ThermalZone) -> int:
    """Read the temperature of a zone in millidegrees Celsius.

    Raises MissingError (also when another zone took its index since it was listed), DeniedError,
    TransientError (EAGAIN: value out of range at the moment; EINVAL: sensor disabled or conversion
    failed) or ImplausibleError (no number, or outside -20 to 130 degrees).
    """
    path = f"{CLASS}/thermal_zone{zone.index}"
    kind = _kind(host, path)
    if kind != zone.type:
        raise MissingError(path, errno.ENODEV, f"zone {zone.type!r} is now {kind!r}")
    value = host.read_integer(f"{path}/temp")
    if not LOWEST_MILLICELSIUS <= value <= HIGHEST_MILLICELSIUS:
        raise ImplausibleError(f"{path}/temp", value, "-20000 to 130000 millidegrees")
    return value


def cooling_devices(host: Host) -> tuple[CoolingDevice, ...]:
    """Return the cooling devices by index; one that cannot be read is left out."""
    found: list[CoolingDevice] = []
    for index, path in _entries(host, _COOLING):
        try:
            kind = _kind(host, path)
            device = CoolingDevice(
                index=index,
                type=kind,
                state=host.read_natural(f"{path}/cur_state"),
                maximum_state=host.read_natural(f"{path}/max_state"),
                is_fan="fan" in kind.lower(),
            )
        except NpuError:
            continue
        found.append(device)
    return tuple(found)


def _kind(host: Host, path: str) -> str:
    """Read what a zone, trip or cooling device calls itself; it becomes a label."""
    text = host.read_text(f"{path}/type").strip()
    if not text.isprintable():
        raise ImplausibleError(f"{path}/type", text, "printable text")
    return text[:_KIND_LENGTH]


def _trips(host: Host, path: str) -> tuple[TripPoint, ...]:
    found: list[TripPoint] = []
    for number, name in _matching(host, path, _TRIP):
        try:
            kind = host.read_text(f"{path}/{name}").strip()
            millicelsius = host.read_integer(f"{path}/trip_point_{number}_temp")
        except NpuError:
            continue
        if kind in _TRIP_KINDS and millicelsius in _TRIP_MILLICELSIUS:
            found.append(TripPoint(kind=kind, millicelsius=millicelsius))
    return tuple(found)


def _entries(host: Host, pattern: re.Pattern[str]) -> list[tuple[int, str]]:
    return [(index, f"{CLASS}/{name}") for index, name in _matching(host, CLASS, pattern)]


def _matching(host: Host, path: str, pattern: re.Pattern[str]) -> list[tuple[int, str]]:
    """Return (number, name) of the matching entries of a directory in numerical order."""
    try:
        names = host.names(path)
    except NpuError:
        return []
    matches = [match for match in map(pattern.fullmatch, names) if match is not None]
    return sorted((int(match[1]), match[0]) for match in matches)

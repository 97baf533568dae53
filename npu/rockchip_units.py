"""The platform devices that a driver serves, gathered into NPUs with a place in one order.

A vendor device tree describes an NPU as one device, a mainline one describes each core. Two drivers
may serve NPUs of one board; they are counted together, so that no two have the same identifier.
"""

from dataclasses import dataclass

from npu import rockchip
from npu.errors import NpuError
from npu.host import Host
from npu.model import Refused
from npu.sysfs import PLATFORM_DRIVERS, PlatformDevice, address_key, read_device

#: Names of the platform drivers, as sysfs spells them.
VENDOR_DRIVER = "RKNPU"
MAINLINE_DRIVER = "rocket"

#: What a driver's directory holds besides links to its devices.
_CONTROLS = frozenset({"bind", "unbind", "uevent", "module", "new_id", "remove_id"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One NPU: ``position`` in the order of platform addresses, ``devices`` by address.

    There are several devices where the device tree describes each core.
    """

    position: int
    driver: str
    devices: tuple[PlatformDevice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """All NPUs with a driver, and the devices that could not be read."""

    units: tuple[Unit, ...] = ()
    refused: tuple[Refused, ...] = ()

    @property
    def devices(self) -> tuple[PlatformDevice, ...]:
        """Every device that a driver serves."""
        return tuple(device for unit in self.units for device in unit.devices)

    def of(self, driver: str) -> tuple[Unit, ...]:
        """Return the NPUs of one driver."""
        return tuple(unit for unit in self.units if unit.driver == driver)


def units(host: Host) -> Units:
    """Return the NPUs that the vendor's and the mainline driver serve."""
    found: list[tuple[str, tuple[PlatformDevice, ...]]] = []
    refused: list[Refused] = []
    for driver in (VENDOR_DRIVER, MAINLINE_DRIVER):
        devices, unreadable = served(host, driver)
        refused += unreadable
        found += [(driver, group) for group in _grouped(devices)]
    found.sort(key=lambda item: address_key(item[1][0].unit))
    return Units(
        units=tuple(
            Unit(position=position, driver=driver, devices=devices)
            for position, (driver, devices) in enumerate(found)
        ),
        refused=tuple(refused),
    )


def serves_several(host: Host, driver: str) -> bool:
    """Tell whether a driver serves several NPUs; raises ReadError.

    Cheap in the usual case: devices are read only where the directory has more than one.
    """
    entries = set(host.names(f"{PLATFORM_DRIVERS}/{driver}")) - _CONTROLS
    return len(entries) > 1 and len(_grouped(served(host, driver)[0])) > 1


def is_bound(host: Host, driver: str, unit: str) -> bool | None:
    """Tell whether ``driver`` is bound to ``unit``, None where sysfs does not show drivers."""
    if host.exists(f"{PLATFORM_DRIVERS}/{driver}/{unit}"):
        return True
    try:
        return False if host.names(PLATFORM_DRIVERS) else None
    except NpuError:
        return None


def served(host: Host, driver: str) -> tuple[list[PlatformDevice], list[Refused]]:
    """Return the NPU devices of a platform driver by address, and those that cannot be read."""
    directory = f"{PLATFORM_DRIVERS}/{driver}"
    devices: list[PlatformDevice] = []
    refused: list[Refused] = []
    try:
        names = host.names(directory)
    except NpuError as error:
        return [], [Refused(what=directory, why="unreadable", detail=str(error))]
    for name in names:
        entry = f"{directory}/{name}"
        if name in _CONTROLS or host.link_name(entry) is None:
            continue
        try:
            device = read_device(host, entry)
        except NpuError as error:
            refused.append(Refused(what=name, why="unreadable", detail=str(error)))
            continue
        if rockchip.is_npu_device(device):
            devices.append(device)
    devices.sort(key=lambda device: address_key(device.unit))
    return devices, refused


def _grouped(devices: list[PlatformDevice]) -> list[tuple[PlatformDevice, ...]]:
    """Return the devices of each NPU: cores described one by one in the device tree are one NPU."""
    cores = tuple(device for device in devices if any(map(rockchip.is_core, device.compatible)))
    whole: list[tuple[PlatformDevice, ...]] = [
        (device,) for device in devices if device not in cores
    ]
    return [*whole, cores] if cores else whole

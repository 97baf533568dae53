"""Platform devices as sysfs shows them.

A device is what its ``uevent`` says it is (world-readable, and never masked in containers, unlike
``of_node``). Names of units and numbers of nodes are never evidence.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from npu.host import Host

PLATFORM_DEVICES = "/sys/bus/platform/devices"
#: Where boot-time platform devices live; used where the bus directory is not visible.
PLATFORM_DEVICES_ROOT = "/sys/devices/platform"
PLATFORM_DRIVERS = "/sys/bus/platform/drivers"

_ADDRESS = re.compile(r"([0-9a-f]{1,16})\.")
_MAX_COMPATIBLES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformDevice:
    """A platform device.

    ``path`` is its directory with links resolved, ``node`` its full name in the device tree
    (``/npu@fdab0000``), ``driver`` the bound driver.
    """

    unit: str
    path: str
    driver: str | None
    compatible: tuple[str, ...]
    node: str | None


def parse_uevent(text: str) -> dict[str, str]:
    """Return the ``KEY=value`` lines of a uevent file; other lines are ignored."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key: value for key, separator, value in pairs if separator}


def compatibles(uevent: Mapping[str, str]) -> tuple[str, ...]:
    """Return the compatible strings of a uevent, most specific first."""
    found: list[str] = []
    for index in range(_MAX_COMPATIBLES):
        value = uevent.get(f"OF_COMPATIBLE_{index}")
        if not value:
            break
        found.append(value)
    return tuple(found)


def read_uevent(host: Host, path: str) -> dict[str, str]:
    """Read ``<path>/uevent``; an empty file is an empty result. Raises ReadError."""
    return parse_uevent(host.read(f"{path}/uevent").decode("utf-8", "replace"))


def read_device(host: Host, path: str) -> PlatformDevice:
    """Read the platform device at ``path`` (a directory or a link to one). Raises ReadError."""
    uevent = read_uevent(host, path)
    real = host.real_path(path)
    return PlatformDevice(
        unit=real.rsplit("/", maxsplit=1)[-1],
        path=real,
        driver=uevent.get("DRIVER") or host.link_name(f"{real}/driver"),
        compatible=compatibles(uevent),
        node=uevent.get("OF_FULLNAME"),
    )


def address_key(unit: str) -> tuple[int, int, str]:
    """Return a key that sorts units by platform address; those without one come last."""
    match = _ADDRESS.match(unit)
    return (1, 0, unit) if match is None else (0, int(match[1], 16), unit)


def platform_device_paths(host: Host) -> list[str]:
    """Return the paths of all platform devices. Raises DeniedError or TransientError."""
    for directory in (PLATFORM_DEVICES, PLATFORM_DEVICES_ROOT):
        names = host.names(directory)
        if names:
            return [f"{directory}/{name}" for name in names]
    return []

"""PCI devices as sysfs shows them (``/sys/bus/pci/devices``)."""

from dataclasses import dataclass

from npu.errors import NpuError
from npu.host import Host

DEVICES = "/sys/bus/pci/devices"
DRIVERS = "/sys/bus/pci/drivers"


@dataclass(frozen=True, slots=True, kw_only=True)
class PciDevice:
    """A PCI device.

    ``bridges`` are the root complex and the bridges above it, outermost first: devices that share
    more of them are nearer to each other. ``numa_node`` is None where the machine tells none.
    """

    address: str
    device: int
    device_class: int
    driver: str | None
    numa_node: int | None
    bridges: tuple[str, ...]


def devices_of(host: Host, vendor: int) -> tuple[PciDevice, ...]:
    """Return a vendor's devices by address; one that cannot be read is left out."""
    try:
        addresses = host.names(DEVICES)
    except NpuError:
        return ()
    found: list[PciDevice] = []
    for address in addresses:
        path = f"{DEVICES}/{address}"
        try:
            # Most devices of a server are something else: nothing but the vendor is read of those.
            if _hexadecimal(host, f"{path}/vendor") != vendor:
                continue
            found.append(
                PciDevice(
                    address=address,
                    device=_hexadecimal(host, f"{path}/device"),
                    device_class=_hexadecimal(host, f"{path}/class"),
                    driver=host.link_name(f"{path}/driver"),
                    numa_node=_numa_node(host, path),
                    bridges=_bridges(host, path),
                )
            )
        except (NpuError, ValueError):
            continue
    return tuple(found)


def _hexadecimal(host: Host, path: str) -> int:
    """Read ``0x19e5``; raises NpuError or ValueError."""
    return int(host.read_text(path).strip(), 16)


def _numa_node(host: Host, path: str) -> int | None:
    try:
        node = host.read_integer(f"{path}/numa_node")
    except NpuError:
        return None
    # The kernel prints -1 where the firmware does not tell.
    return node if node >= 0 else None


def _bridges(host: Host, path: str) -> tuple[str, ...]:
    parts = host.real_path(path).split("/")[:-1]
    return tuple(part for part in parts if ":" in part)

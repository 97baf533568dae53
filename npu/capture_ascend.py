"""The part of a capture that is about Ascend chips: PCI, device nodes, files of the driver.

Of the driver's libraries only the names are kept: a board file says that they are there, and what
is handed to containers follows from that.
"""

from collections.abc import Iterator

from npu import pci
from npu.drivers import ascend_products as products
from npu.drivers.ascend import VENDOR_ID, is_accelerator
from npu.errors import NpuError
from npu.host import Host
from npu.model import Inventory

_PRODUCTS = (
    products.CARD,
    products.A5,
    products.SOC_310B,
    products.SOC_A1,
    products.SOC_200,
)
#: Device nodes whose numbers are kept, as patterns; looked at where there is a chip only, as some
#: have names that other machines use as well.
NODES = (
    "/dev/davinci*",
    "/dev/vdavinci*",
    *sorted({node for product in _PRODUCTS for node in product.nodes}),
    *sorted({f"{folder}/*" for product in _PRODUCTS for folder in product.folders}),
)
#: The one file of the driver that is read: the version is in it.
_READ = "/usr/local/Ascend/driver/version.info"


def present(host: Host, inventory: Inventory) -> bool:
    """Tell whether there is anything of Ascend to capture."""
    return any(npu.vendor == "huawei" for npu in inventory.npus) or bool(pci_devices(host))


def pci_devices(host: Host) -> dict[str, dict[str, object]]:
    """Return the accelerators on the PCI bus by address, as board files tell them."""
    found: dict[str, dict[str, object]] = {}
    for device in pci.devices_of(host, VENDOR_ID):
        if not is_accelerator(device):
            continue
        told: dict[str, object] = {
            "vendor": f"{VENDOR_ID:#06x}",
            "device": f"{device.device:#06x}",
            "device_class": f"{device.device_class:#08x}",
            "bridges": list(device.bridges),
            "driver": device.driver,
            "numa_node": device.numa_node,
            "attributes": _attributes(host, device.address),
        }
        found[device.address] = {key: value for key, value in told.items() if value is not None}
    return found


def files(host: Host) -> Iterator[tuple[str, str | None]]:
    """Yield files of the driver that containers may get, and their content.

    None stands for one that is to be read; a folder is told by a file in it.
    """
    for path in sorted({path for product in _PRODUCTS for path in product.files}):
        if not host.exists(path):
            continue
        if path == _READ:
            yield path, None
        else:
            yield f"{path}/.captured" if _is_folder(host, path) else path, ""


def simulation(inventory: Inventory) -> dict[str, object] | None:
    """Return how a simulator shows the chips; memory, power and heat are guesses."""
    chips = [npu for npu in inventory.npus if npu.vendor == "huawei"]
    if not chips or any(npu.model.endswith(products.VIRTUAL) for npu in chips):
        return None
    return {
        "chips": {
            "name": chips[0].model.removeprefix("ascend").upper() or "Ascend",
            "version": chips[0].driver_version or "0.0.0",
            "memory_megabytes": 8192,
            "idle_watts": 30,
            "busy_watts": 100,
        },
        "heating": {
            "idle_celsius": 14.0,
            "fast_celsius": 14.0,
            "fast_seconds": 6.0,
            "slow_celsius": 16.0,
            "slow_seconds": 120.0,
        },
    }


def _is_folder(host: Host, path: str) -> bool:
    try:
        return bool(host.names(path))
    except NpuError:
        return False


def _attributes(host: Host, address: str) -> dict[str, str]:
    """Return the driver's own file that tells the chip of a PCI device."""
    try:
        return {"dev_id": str(host.read_integer(f"{pci.DEVICES}/{address}/dev_id"))}
    except NpuError:
        return {}

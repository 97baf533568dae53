"""Huawei Ascend on a node: the driver's parts that programs in containers need."""

from collections.abc import Iterator

from npu import pci
from npu.drivers import ascend_products as products
from npu.drivers.ascend import VENDOR_ID, AscendDriver
from npu.host import Host
from npu.model import Inventory
from plugin.doctor.finding import Finding, fail, ok

_LIBRARIES = "/usr/local/Ascend/driver/lib64"
_BOARD_LIBRARIES = "/usr/lib64/libdcmi.so"
_CHECK = "Ascend"


def findings(host: Host, inventory: Inventory) -> Iterator[Finding]:
    """Judge driver, manager node and libraries; nothing on a board without Ascend hardware."""
    chips = [npu for npu in inventory.npus if npu.driver == AscendDriver.name]
    cards = [
        device for device in pci.devices_of(host, VENDOR_ID) if device.device in products.CHIPS
    ]
    if not (chips or cards):
        return
    unbound = [card.address for card in cards if card.driver is None]
    if unbound:
        yield fail(
            _CHECK,
            f"driver absent: no driver for {', '.join(unbound)}",
            "install the driver of Huawei's HDK for this kernel and reboot; "
            "`/usr/local/Ascend/driver/version.info` then names it",
        )
    else:
        yield ok(
            _CHECK,
            f"driver {chips[0].driver_version or '(version unknown)'}" if chips else "driver bound",
        )
    managers = [path for path in (products.DOCKER_MANAGER, products.MANAGER) if host.exists(path)]
    if managers:
        yield ok(_CHECK, f"manager node {managers[0]}")
    else:
        yield fail(
            _CHECK,
            f"manager node absent: no {products.MANAGER}",
            "the driver is not loaded completely: `npu-smi info` and `dmesg | grep -i davinci`; "
            "after an upgrade of driver or firmware the node must be rebooted",
        )
    if host.exists(_LIBRARIES) or host.exists(_BOARD_LIBRARIES):
        yield ok(_CHECK, f"driver libraries in {_LIBRARIES}")
    else:
        yield fail(
            _CHECK,
            f"driver libraries absent: no {_LIBRARIES}",
            "containers get them from the node: programs there fail with `dcmi module initialize "
            "failed. ret is -8005` or miss libascend_hal.so. Install the driver with its usual "
            "path, and keep /usr in plugin.library.hostDirs",
        )

"""Huawei Ascend: chips behind the driver of Huawei's HDK, found without any vendor library.

Each chip is ``/dev/davinci<N>``, N being its physical id; a part of a chip that an administrator
made is ``/dev/vdavinci<V>``. PCI tells what chip it is and where it sits, and the driver's
``dev_id`` file which chip a PCI device is: the order of addresses is not the order of ids. Nothing
here opens a device node or runs a program; what only ``npu-smi`` knows is
:mod:`npu.drivers.ascend_smi`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from npu import pci
from npu.drivers import ascend_products as products
from npu.drivers.ascend_products import Product
from npu.errors import NpuError
from npu.host import Host
from npu.ids import ascend_device_id, virtual_device_id
from npu.model import Clock, CoreLoad, DeviceNode, Inventory, NodeRole, Npu, Refused
from npu.pci import PciDevice

VENDOR_ID = 0x19E5
#: Processing accelerators; network cards of the same vendor have another class.
_ACCELERATOR = 0x1200
_CLASS_SHIFT = 8
_PCI_DRIVER = f"{pci.DRIVERS}/devdrv_device_driver"
_VERSION_FILE = "/usr/local/Ascend/driver/version.info"
_VERSION = re.compile(r"^Version\s*=\s*([0-9A-Za-z][0-9A-Za-z._-]{0,40})\s*$", re.MULTILINE)
_CHIP = re.compile(r"davinci(0|[1-9][0-9]{0,3})")
_PART = re.compile(r"vdavinci([1-9][0-9]{2,3})")
#: ``npu-smi`` numbers the parts of chip N from 100 + 16 N on.
_FIRST_PART = 100
_PARTS_PER_CHIP = 16
#: Chips 0-3 and 4-7 of a 910A server are two rings of the fast links between chips (HCCS); the
#: 910B and later are all linked with each other.
_RING_CHIPS = {"ascend910": 4}
#: Chips with consecutive ids that are on one card.
_CARD_CHIPS = {"ascend910c": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What a look at the board saw: PCI devices by physical id, and chips and parts by number."""

    accelerators: tuple[PciDevice, ...]
    by_id: Mapping[int, PciDevice]
    chips: tuple[int, ...]
    parts: tuple[int, ...]
    sees_nodes: bool


class AscendDriver:
    """Huawei's driver; see :class:`npu.registry.Driver` for the contract."""

    name = "ascend"

    def discover(self, host: Host) -> Inventory:
        """Find chips and parts of chips, and accelerators that cannot be used."""
        found = _look(host)
        if not (found.accelerators or found.chips or found.parts):
            return Inventory()
        refused = [*_without_driver(found), *_without_node(found)]
        manager = _manager(host, found)
        if manager is None:
            return Inventory(refused=(*refused, *_without_manager(found)))
        return Inventory(npus=tuple(_npus(host, found, manager)), refused=tuple(refused))

    def load(self, host: Host, npu: Npu) -> tuple[CoreLoad, ...]:  # noqa: ARG002
        """Return nothing: the driver has no file for it, only its tools tell."""
        return ()

    def clock(self, host: Host, npu: Npu) -> Clock:  # noqa: ARG002
        """Return no clock: the driver has no file for it."""
        return Clock()

    def powered(self, host: Host, npu: Npu) -> bool | None:  # noqa: ARG002
        """Return None: the driver has no file for it."""
        return None

    def bound(self, host: Host, npu: Npu) -> bool | None:
        """Tell whether the driver is bound; off the PCI bus, whether it is there at all."""
        if ":" in npu.unit:
            try:
                names = host.names(_PCI_DRIVER)
            except NpuError:
                return None
            return npu.unit in names
        return any(host.exists(node.path) for node in npu.nodes if node.role == "manager")


def is_accelerator(device: PciDevice) -> bool:
    """Tell whether a PCI device of the vendor is a chip and no network card."""
    return device.device_class >> _CLASS_SHIFT == _ACCELERATOR


def part_of(part: int) -> int:
    """Return the physical id of the chip that the virtual NPU ``part`` belongs to."""
    return (part - _FIRST_PART) // _PARTS_PER_CHIP


def parse_version(text: str) -> str | None:
    """Return ``25.5.1`` from the text of ``version.info``, None where it has no such line."""
    match = _VERSION.search(text)
    return None if match is None else match[1]


def _look(host: Host) -> _Found:
    accelerators = tuple(
        device for device in pci.devices_of(host, VENDOR_ID) if is_accelerator(device)
    )
    sees_nodes = host.exists("/dev")
    by_id = _by_id(host, accelerators)
    names = _names(host, "/dev") if sees_nodes else _registered(host, bool(accelerators))
    chips = _numbers(_CHIP, names)
    if not sees_nodes:
        chips = sorted({*chips, *by_id})
    if len(chips) == len(accelerators) == 1 and not by_id:
        by_id = {chips[0]: accelerators[0]}
    return _Found(
        accelerators=accelerators,
        by_id=by_id,
        chips=tuple(chips),
        parts=tuple(_numbers(_PART, names)),
        sees_nodes=sees_nodes,
    )


def _by_id(host: Host, accelerators: tuple[PciDevice, ...]) -> dict[int, PciDevice]:
    """Return devices by physical id as the driver tells it; ids given twice tell nothing."""
    found: dict[int, PciDevice] = {}
    twice: set[int] = set()
    for device in accelerators:
        try:
            number = host.read_integer(f"{pci.DEVICES}/{device.address}/dev_id")
        except NpuError:
            continue
        if number in found or number < 0:
            twice.add(number)
        found[number] = device
    return {number: device for number, device in found.items() if number not in twice}


def _names(host: Host, path: str) -> list[str]:
    try:
        return host.names(path)
    except NpuError:
        return []


def _registered(host: Host, wanted: bool) -> list[str]:  # noqa: FBT001
    """Return the names of character devices in sysfs, for a service that does not see /dev."""
    if not wanted:
        return []
    links = (host.link_name(f"/sys/dev/char/{name}") for name in _names(host, "/sys/dev/char"))
    return [name for name in links if name is not None]


def _numbers(pattern: re.Pattern[str], names: list[str]) -> list[int]:
    return sorted(int(match[1]) for match in map(pattern.fullmatch, names) if match is not None)


def _without_driver(found: _Found) -> list[Refused]:
    return [
        Refused(
            what=device.address,
            why="driver_not_bound",
            model=products.CHIPS.get(device.device, products.UNKNOWN_MODEL),
            detail="an Ascend accelerator without its driver: install the driver of Huawei's HDK "
            "for this kernel (`lspci -k` on the node shows what is bound, vfio-pci for example)",
        )
        for device in found.accelerators
        if device.driver != _PCI_DRIVER.rsplit("/", maxsplit=1)[-1]
    ]


def _without_node(found: _Found) -> list[Refused]:
    """Return accelerators whose driver made no chip, as far as that can be told."""
    if not found.sees_nodes:
        return []
    lost = [device for number, device in found.by_id.items() if number not in found.chips]
    bound = [device for device in found.accelerators if device.driver is not None]
    if not found.chips and not found.parts:
        lost = bound
    return [
        Refused(
            what=device.address,
            why="no_device_node",
            model=products.CHIPS.get(device.device, products.UNKNOWN_MODEL),
            detail="the driver is bound and there is no /dev/davinci node for this chip: it is "
            "still starting, dropped off the bus, or being upgraded; `npu-smi info` on the node",
        )
        for device in lost
        if device.driver is not None
    ]


def _without_manager(found: _Found) -> list[Refused]:
    units = {_unit(found, chip) for chip in found.chips}
    units |= {_unit(found, part_of(part)) for part in found.parts}
    return [
        Refused(
            what=unit,
            why="no_device_node",
            detail=f"the chip has a device node and there is no {products.MANAGER}, without which "
            "no program can use it: the driver is not loaded completely; `npu-smi info` and "
            "`dmesg | grep -i davinci` on the node tell why",
        )
        for unit in sorted(units)
    ]


def _unit(found: _Found, chip: int) -> str:
    device = found.by_id.get(chip)
    return ascend_device_id(chip) if device is None else device.address


def _manager(host: Host, found: _Found) -> DeviceNode | None:
    if not found.sees_nodes:
        return _node("manager", products.MANAGER)
    for path in (products.DOCKER_MANAGER, products.MANAGER):
        if host.exists(path):
            return _node("manager", path, products.MANAGER)
    return None


def _npus(host: Host, found: _Found, manager: DeviceNode) -> list[Npu]:
    product, soc_model = _product(host, found)
    extra = _extra_nodes(host, product)
    files = tuple(path for path in product.files if host.exists(path))
    version = _version(host)
    split = {part_of(part) for part in found.parts}

    def npu(identifier: str, node: DeviceNode, chip: int, ending: str = "") -> Npu:
        device = found.by_id.get(chip)
        model = soc_model or _model(found, device)
        return Npu(
            id=identifier,
            vendor="huawei",
            model=f"{model}{ending}",
            driver=AscendDriver.name,
            mode="davinci",
            unit=_unit(found, chip),
            driver_version=version,
            nodes=(node, manager, *extra),
            files=files,
            numa_node=_numa_node(found, device),
            groups=_groups(model, chip, device),
        )

    npus = [
        npu(ascend_device_id(chip), _node("davinci", f"/dev/davinci{chip}"), chip)
        for chip in found.chips
        # A chip that was divided is used through its parts.
        if chip not in split
    ]
    for part in found.parts:
        node = _node("davinci", f"/dev/vdavinci{part}", f"/dev/davinci{part}")
        npus.append(npu(virtual_device_id(part), node, part_of(part), products.VIRTUAL))
    return npus


def _product(host: Host, found: _Found) -> tuple[Product, str | None]:
    """Return the kind of machine, and the chip where PCI does not tell it."""
    if not found.accelerators:
        for node, product, model in products.SOCS:
            if host.exists(node):
                return product, model
        return products.CARD, None
    known = any(device.device in products.CHIPS for device in found.accelerators)
    if not known and host.exists(products.A5_EVIDENCE):
        return products.A5, products.A5_MODEL
    return products.CARD, None


def _model(found: _Found, device: PciDevice | None) -> str:
    """Return the chip; one whose PCI device is not known is what all of them are."""
    devices = found.accelerators if device is None else (device,)
    models = {products.CHIPS.get(one.device, products.UNKNOWN_MODEL) for one in devices}
    return models.pop() if len(models) == 1 else products.UNKNOWN_MODEL


def _numa_node(found: _Found, device: PciDevice | None) -> int | None:
    """Return the memory node of a chip; where its PCI device is not known, the one all have."""
    if device is not None:
        return device.numa_node
    nodes = {one.numa_node for one in found.accelerators}
    return nodes.pop() if len(nodes) == 1 else None


def _groups(model: str, chip: int, device: PciDevice | None) -> tuple[str, ...]:
    """Return what a chip shares with others, outermost first: ring, bridges, card."""
    groups: list[str] = []
    if model in _RING_CHIPS:
        groups.append(f"ring{chip // _RING_CHIPS[model]}")
    if device is not None:
        groups += device.bridges
    if model in _CARD_CHIPS:
        groups.append(f"card{chip // _CARD_CHIPS[model]}")
    return tuple(groups)


def _extra_nodes(host: Host, product: Product) -> tuple[DeviceNode, ...]:
    paths = list(product.nodes)
    for folder in product.folders:
        paths += [f"{folder}/{name}" for name in _names(host, folder)]
    return tuple(_node("manager", path) for path in paths if host.exists(path))


def _node(role: NodeRole, path: str, container_path: str | None = None) -> DeviceNode:
    return DeviceNode(role=role, path=path, stable_path=path, container_path=container_path or path)


def _version(host: Host) -> str | None:
    try:
        return parse_version(host.read_text(_VERSION_FILE))
    except NpuError:
        return None

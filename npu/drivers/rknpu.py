"""Rockchip's vendor driver RKNPU, in DRM mode and in misc mode.

DRM mode has a card and a render node, misc mode ``/dev/rknpu``; one node, or one pair, serves all
cores. The driver is found by its link in sysfs, its devices by their compatible strings. Nothing
here opens a device node: every ioctl of this driver powers the NPU on.
"""

from npu import devfreq, devicetree, rockchip
from npu.drivers import rknpu_files
from npu.drm import DrmNode, drm_nodes
from npu.errors import ImplausibleError, MissingError, NpuError
from npu.host import Host
from npu.ids import rockchip_device_id
from npu.model import Clock, CoreLoad, DeviceNode, Inventory, Npu, Refused
from npu.rockchip_units import VENDOR_DRIVER, Unit, is_bound, serves_several, units
from npu.sysfs import PlatformDevice

_MISC_CLASS = "/sys/class/misc/rknpu"
_MISC_NODE = "/dev/rknpu"

#: Names in the container, the same on every boot: those that most boards have on the host, and
#: that RKNN-Toolkit Lite looks for. A second NPU gets the next numbers.
_FIRST_CARD = 1
_FIRST_RENDER = 129


class RknpuDriver:
    """The vendor driver; see :class:`npu.registry.Driver` for the contract."""

    name = "rknpu"

    def discover(self, host: Host) -> Inventory:
        """Find the NPUs bound to RKNPU, and Rockchip NPUs that no driver serves."""
        all_units = units(host)
        mine = all_units.of(VENDOR_DRIVER)
        refused = list(all_units.refused)
        found: list[Npu] = []
        drm = drm_nodes(host)
        for unit in mine:
            nodes = _nodes(host, unit, drm)
            if not nodes:
                refused.append(_without_node(host, unit.devices[0], drm))
                continue
            found.append(_npu(host, unit, nodes, alone=len(mine) == 1))
        refused.extend(rockchip.without_driver(host, all_units.devices))
        return Inventory(npus=tuple(found), refused=tuple(refused))

    def load(self, host: Host, npu: Npu) -> tuple[CoreLoad, ...]:
        """Read the busy share of each core in the previous whole second.

        Empty for drivers that have no such file yet. Raises ReadError or ImplausibleError, also
        where one file stands for several NPUs or shows fewer cores than at the scan.
        """
        if serves_several(host, VENDOR_DRIVER):
            raise MissingError(
                f"{rknpu_files.DEBUGFS}/load", 2, "one file for several NPUs cannot be attributed"
            )
        try:
            cores = rknpu_files.read_load(host)
        except MissingError:
            if rknpu_files.precedes_files(npu.driver_version):
                return ()
            raise
        if npu.cores is not None and len(cores) != npu.cores:
            raise ImplausibleError("load", f"{len(cores)} cores", f"{npu.cores} cores")
        return cores

    def clock(self, host: Host, npu: Npu) -> Clock:
        """Read the clock from devfreq, which some kernels lack."""
        return devfreq.clock(host, npu.unit, rockchip.is_npu)

    def powered(self, host: Host, npu: Npu) -> bool | None:  # noqa: ARG002 (one file per driver)
        """Tell whether the power domain is on, None where ``power`` cannot be read."""
        try:
            return rknpu_files.read_powered(host)
        except NpuError:
            return None

    def bound(self, host: Host, npu: Npu) -> bool | None:
        """Tell whether the driver is bound, None where sysfs does not show drivers."""
        return is_bound(host, VENDOR_DRIVER, npu.unit)


def _npu(host: Host, unit: Unit, nodes: tuple[DeviceNode, ...], *, alone: bool) -> Npu:
    device = unit.devices[0]
    try:
        # The driver has one load file: with several NPUs nobody knows whose cores it counts.
        cores = len(rknpu_files.read_load(host)) if alone else None
    except NpuError:
        cores = None
    try:
        version = rknpu_files.read_version(host)
    except NpuError:
        version = None
    return Npu(
        id=rockchip_device_id(unit.position),
        vendor="rockchip",
        model=rockchip.model_of(device.compatible, devicetree.board_compatible(host)),
        driver=RknpuDriver.name,
        mode="misc" if all(node.role == "misc" for node in nodes) else "drm",
        unit=device.unit,
        driver_version=version,
        cores=cores,
        nodes=nodes,
        board=devicetree.board_model(host),
    )


def _nodes(host: Host, unit: Unit, drm: tuple[DrmNode, ...]) -> tuple[DeviceNode, ...]:
    """Return the device nodes of an NPU, card before render before misc; empty where none is left.

    Ports of the driver to newer kernels may have DRM nodes and a misc node: one NPU with all three.
    """
    has_misc = host.exists(f"{_MISC_CLASS}/dev")
    paths = {device.path for device in unit.devices}
    own = [node for node in drm if node.device in paths]
    if not own and not has_misc:
        own = _anonymous(drm)
    found = [
        _drm_node(host, node, unit.devices[0].unit, unit.position)
        for node in sorted(own, key=lambda node: (node.role, node.name))
    ]
    if has_misc:
        found.append(
            DeviceNode(
                role="misc", path=_MISC_NODE, stable_path=_MISC_NODE, container_path=_MISC_NODE
            )
        )
    # A service that sees only /sys still knows the nodes; one that sees /dev checks them.
    if host.exists("/dev") and not all(host.exists(node.path) for node in found):
        return ()
    return tuple(found)


def _anonymous(drm: tuple[DrmNode, ...]) -> list[DrmNode]:
    """Return the nodes of the one DRM device that says nothing about itself, else nothing.

    Ports of the driver to mainline kernels register DRM on a virtual device with an empty uevent.
    With two such devices a guess would be needed, or opening them, so none is taken.
    """
    nodes = [node for node in drm if node.anonymous]
    return nodes if len({node.device for node in nodes}) == 1 else []


def _drm_node(host: Host, node: DrmNode, unit: str, position: int) -> DeviceNode:
    link = f"/dev/dri/by-path/platform-{unit}-{node.role}"
    try:
        same = host.exists(link) and host.real_path(link) == host.real_path(node.path)
        stable = link if same else node.path
    except NpuError:
        stable = node.path
    name = (
        f"card{_FIRST_CARD + position}"
        if node.role == "card"
        else f"renderD{_FIRST_RENDER + position}"
    )
    return DeviceNode(
        role=node.role, path=node.path, stable_path=stable, container_path=f"/dev/dri/{name}"
    )


def _without_node(host: Host, device: PlatformDevice, drm: tuple[DrmNode, ...]) -> Refused:
    unnamed = sorted({node.device for node in drm if node.anonymous})
    detail = (
        f"several DRM devices do not say what they are ({', '.join(unnamed)}), so the NPU's node "
        "cannot be told from the others"
        if len(unnamed) > 1
        else "the driver is bound and has no usable device node in /dev: see the kernel log for "
        "RKNPU lines, and whether /dev is a devtmpfs"
    )
    return Refused(
        what=device.unit,
        why="no_device_node",
        detail=detail,
        model=rockchip.model_of(device.compatible, devicetree.board_compatible(host)),
    )

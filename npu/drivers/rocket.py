"""The mainline driver ``rocket`` (Linux 6.18, ``drivers/accel/rocket``).

The cores are platform devices of their own; one accel device, which belongs to a façade platform
device ``rknn`` without a node in the device tree, serves them all. The driver has no version, no
load, no clock and no files of its own. Programs for the vendor's runtime do not run on it.
"""

import errno
import threading
import time
from collections.abc import Callable

from npu import devicetree, rockchip
from npu.accel import AccelNode, accel_nodes
from npu.activity import Activity
from npu.errors import MissingError, NpuError
from npu.host import Host
from npu.ids import rockchip_device_id
from npu.model import Clock, CoreLoad, DeviceNode, Inventory, Npu, Refused
from npu.rockchip_units import MAINLINE_DRIVER, Unit, is_bound, served, units
from npu.sysfs import PLATFORM_DRIVERS

_FACADE_MODALIAS = "platform:rknn"
_POWER_STATES = {
    "active": True,
    "resuming": True,
    "suspending": True,
    "suspended": False,
}


class RocketDriver:
    """The mainline driver; see :class:`npu.registry.Driver` for the contract.

    Load is an estimate: the time a core's power was on (runtime power management), which runs 50 ms
    longer than the last job of each burst. It is a counter, so a reading speaks for the time since
    the one before, and the first one for nothing.
    """

    name = "rocket"

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._activities: dict[tuple[str, str], Activity] = {}

    def discover(self, host: Host) -> Inventory:
        """Find the NPU whose cores are bound to rocket."""
        mine = units(host).of(MAINLINE_DRIVER)
        if not mine:
            return Inventory()
        # Cores are always one NPU, so there is one unit and one façade.
        unit = mine[0]
        nodes = _nodes(host, unit.position)
        if not nodes:
            return Inventory(refused=(_without_node(host, unit),))
        return Inventory(npus=(_npu(host, unit, nodes),))

    def load(self, host: Host, npu: Npu) -> tuple[CoreLoad, ...]:
        """Estimate the busy share of each core since the reading before; empty at the first one.

        Raises ReadError or ImplausibleError, also where runtime power management is switched off,
        because the power is then on all the time whether a job runs or not.
        """
        cores = _core_paths(host)
        if not cores:
            raise MissingError(f"{PLATFORM_DRIVERS}/{MAINLINE_DRIVER}", errno.ENODEV)
        times = [_active_milliseconds(host, path) for path in cores]
        with self._lock:
            activity = self._activities.setdefault((host.root, npu.id), Activity())
            ratios = activity.advance(times, self._monotonic())
        return tuple(CoreLoad(core=core, ratio=ratio) for core, ratio in enumerate(ratios))

    def clock(self, host: Host, npu: Npu) -> Clock:  # noqa: ARG002 (there is none to read)
        """Return nothing: the driver has no devfreq entry."""
        return Clock()

    def powered(self, host: Host, npu: Npu) -> bool | None:  # noqa: ARG002 (all cores are its own)
        """Tell whether any core is powered, None where a state cannot be read."""
        states: list[bool | None] = []
        for path in _core_paths(host):
            try:
                text = host.read_text(f"{path}/power/runtime_status").strip()
            except NpuError:
                return None
            states.append(_POWER_STATES.get(text))
        if True in states:
            return True
        return None if None in states or not states else False

    def bound(self, host: Host, npu: Npu) -> bool | None:
        """Tell whether the driver is bound to the first core, None where sysfs hides drivers."""
        return is_bound(host, MAINLINE_DRIVER, npu.unit)


def _npu(host: Host, unit: Unit, nodes: tuple[DeviceNode, ...]) -> Npu:
    first = unit.devices[0]
    return Npu(
        id=rockchip_device_id(unit.position),
        vendor="rockchip",
        model=rockchip.model_of(first.compatible, devicetree.board_compatible(host)),
        driver=RocketDriver.name,
        mode="accel",
        unit=first.unit,
        cores=len(unit.devices),
        nodes=nodes,
        board=devicetree.board_model(host),
        load_is_estimate=True,
    )


def _nodes(host: Host, position: int) -> tuple[DeviceNode, ...]:
    node = _facade(accel_nodes(host))
    # A service that sees only /sys still knows the node; one that sees /dev checks it.
    if node is None or (host.exists("/dev") and not host.exists(node.path)):
        return ()
    return (
        DeviceNode(
            role="accel",
            path=node.path,
            stable_path=node.path,
            container_path=f"/dev/accel/accel{position}",
        ),
    )


def _facade(nodes: tuple[AccelNode, ...]) -> AccelNode | None:
    """Return the node of rocket's façade, None where it cannot be told from others.

    The façade is the platform device ``rknn``. Should a kernel call it otherwise, it is still the
    one accel device that has neither a driver nor a place in the device tree.
    """
    for candidates in (
        [node for node in nodes if node.modalias == _FACADE_MODALIAS],
        [node for node in nodes if node.driver is None and not node.compatible],
    ):
        if len(candidates) == 1:
            return candidates[0]
    return None


def _core_paths(host: Host) -> list[str]:
    """Return the directories of the cores by address."""
    return [device.path for device in served(host, MAINLINE_DRIVER)[0]]


def _active_milliseconds(host: Host, core: str) -> int:
    """Return for how long a core's power has been on since boot.

    Source: ``drivers/base/power/sysfs.c``. Raises ReadError or ImplausibleError.
    """
    power = f"{core}/power"
    try:
        control = host.read_text(f"{power}/control").strip()
    except MissingError:
        control = "auto"
    if control == "on":
        raise MissingError(
            f"{power}/control",
            errno.ENODATA,
            "runtime power management is switched off (write auto to it), so the time the power "
            "is on says nothing about use",
        )
    return host.read_natural(f"{power}/runtime_active_time")


def _without_node(host: Host, unit: Unit) -> Refused:
    others = [node.name for node in accel_nodes(host)]
    return Refused(
        what=unit.devices[0].unit,
        why="no_device_node",
        detail="rocket is bound and has no usable node in /dev/accel"
        + (f" (accel devices here: {', '.join(others)})" if others else "")
        + ": see the kernel log for rocket lines, and whether /dev is a devtmpfs",
        model=rockchip.model_of(unit.devices[0].compatible, devicetree.board_compatible(host)),
    )

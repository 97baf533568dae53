"""What identifies a Rockchip NPU, whatever driver is bound to it."""

import re
from collections.abc import Iterable

from npu import devicetree
from npu.errors import NpuError
from npu.host import Host
from npu.model import Refused
from npu.sysfs import (
    PlatformDevice,
    compatibles,
    platform_device_paths,
    read_device,
    read_uevent,
)

_COMPATIBLE = re.compile(r"rockchip,([a-z0-9]{1,32})-(rknpu|rknn-core)")
_GENERIC = "rockchip,rknpu"
_SOC = re.compile(r"rockchip,((?:rk|rv)[0-9a-z]{1,30})")

#: Parts that run the programs of another part: the name of the compiler's target is the model.
_TARGETS = {
    "rk3588s": "rk3588",
    "rk3588s2": "rk3588",
    "rk3583": "rk3588",
    "rk3582": "rk3588",
    "rk3566": "rk3568",
    "rv1103": "rv1106",
}
_VENDOR_ADVICE = (
    "an NPU without a driver: boot a kernel with Rockchip's RKNPU driver (vendor kernel or DKMS "
    "module) and see its log for RKNPU lines"
)
_MAINLINE_ADVICE = (
    "an NPU without a driver: load the module rocket (Linux 6.18 or later; RKNN programs do not "
    "run on it), or boot a vendor kernel for RKNN, and see the kernel log for rocket or RKNPU lines"
)
#: The generic compatible string was introduced for these parts.
_GENERIC_MODEL = "rk3568"


def is_npu(compatible: str) -> bool:
    """Tell whether a compatible string is a Rockchip NPU's (``rockchip,rk3588-rknpu`` …)."""
    return compatible == _GENERIC or _COMPATIBLE.fullmatch(compatible) is not None


def is_core(compatible: str) -> bool:
    """Tell whether it is one core of an NPU, as mainline device trees describe it."""
    return compatible.endswith("-rknn-core") and is_npu(compatible)


def is_npu_device(device: PlatformDevice) -> bool:
    """Tell whether a platform device is a Rockchip NPU or a core of one."""
    return any(map(is_npu, device.compatible))


def model_of(compatible: Iterable[str], board: Iterable[str]) -> str:
    """Return the compiler's target name, e.g. ``rk3588`` also for RK3588S and RK3582.

    ``compatible`` is the NPU's, ``board`` the whole board's, which decides for the generic string.
    """
    for text in compatible:
        match = _COMPATIBLE.fullmatch(text)
        if match is not None:
            return _TARGETS.get(match[1], match[1])
    for text in board:
        soc = _SOC.fullmatch(text)
        if soc is not None:
            return _TARGETS.get(soc[1], soc[1])
    return _GENERIC_MODEL


def without_driver(host: Host, bound: tuple[PlatformDevice, ...]) -> tuple[Refused, ...]:
    """Return NPU hardware of the board that no driver serves, and why.

    ``bound`` are the NPUs that have a driver. Where there are some, only units of the same kind are
    looked at: reading the hundreds of devices of a board at each scan is not worth it, and the
    remaining cores of an NPU that is described core by core are no NPUs of their own.
    """
    if any(is_core(text) for device in bound for text in device.compatible):
        return ()
    board = devicetree.board_compatible(host)
    refused: dict[str, Refused] = {}
    served = {device.node for device in bound}
    seen_core = False
    for device in _unbound(host, {_kind(device.unit) for device in bound}):
        if device.driver is not None:
            served.add(device.node)
            continue
        if any(map(is_core, device.compatible)):
            if seen_core:
                continue
            seen_core = True
        key = device.node or device.unit
        model = model_of(device.compatible, board)
        refused[key] = Refused(
            what=device.unit,
            why="driver_not_bound",
            model=model,
            detail=_MAINLINE_ADVICE if any(map(is_core, device.compatible)) else _VENDOR_ADVICE,
        )
    if bound:
        return tuple(refused.values())
    for node, compatible in devicetree.nodes(host, is_npu):
        if node in served or node in refused or (seen_core and any(map(is_core, compatible))):
            continue
        seen_core = seen_core or any(map(is_core, compatible))
        disabled = devicetree.is_disabled(host, node)
        refused[node] = Refused(
            what=node,
            why="node_disabled" if disabled else "driver_not_bound",
            model=model_of(compatible, board),
            detail="the NPU is switched off in the device tree: enable it with an overlay or "
            "another device tree of the board"
            if disabled
            else "the device tree describes an NPU for which the kernel made no device",
        )
    return tuple(refused.values())


def _kind(unit: str) -> str:
    return unit.rpartition(".")[2]


def _unbound(host: Host, kinds: set[str]) -> list[PlatformDevice]:
    found: list[PlatformDevice] = []
    try:
        paths = platform_device_paths(host)
    except NpuError:
        return []
    for path in paths:
        if kinds and _kind(path) not in kinds:
            continue
        try:
            # Most devices are something else: nothing but the uevent is read of those.
            if any(map(is_npu, compatibles(read_uevent(host, path)))):
                found.append(read_device(host, path))
        except NpuError:
            continue
    return found

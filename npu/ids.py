"""Grammar of device identifiers, an upgrade contract with every kubelet checkpoint.

``npu<N>`` is a whole Rockchip NPU, ``davinci<N>`` an Ascend chip (N is its physical id),
``vdavinci<V>`` a part of one (V is the id of the virtual NPU), and ``<device>-s<K>`` a slot of a
shared one. The kubelet stores identifiers of running Pods and rejects
those Pods after a reboot when an identifier is gone, so the grammar does not change.
"""

import re

_DEVICE = re.compile(r"(npu|v?davinci)(0|[1-9][0-9]{0,5})(?:-s(0|[1-9][0-9]{0,5}))?")


def rockchip_device_id(position: int) -> str:
    """Return the identifier of the NPU at ``position`` in the order of platform addresses."""
    return f"npu{position}"


def ascend_device_id(physical_id: int) -> str:
    """Return the identifier of the Ascend chip with this physical id."""
    return f"davinci{physical_id}"


def virtual_device_id(virtual_id: int) -> str:
    """Return the identifier of a virtual NPU, a part of an Ascend chip."""
    return f"vdavinci{virtual_id}"


def slot_id(device_id: str, slot: int) -> str:
    """Return the identifier of slot ``slot`` of a shared device."""
    return f"{device_id}-s{slot}"


def device_of(identifier: str) -> str:
    """Return the device that an allocated identifier belongs to.

    Raises ValueError where the identifier is not of the grammar.
    """
    match = _DEVICE.fullmatch(identifier)
    if match is None:
        raise ValueError(f"{identifier!r} is not a device identifier")
    return f"{match[1]}{match[2]}"


def slot_of(identifier: str) -> int | None:
    """Return the slot number of an identifier, None where it stands for a whole device."""
    match = _DEVICE.fullmatch(identifier)
    return None if match is None or match[3] is None else int(match[3])


def sort_key(identifier: str) -> tuple[str, int, int]:
    """Return a key that sorts ``npu10`` after ``npu2`` and slots after their device."""
    match = _DEVICE.fullmatch(identifier)
    if match is None:
        return (identifier, -1, -1)
    return (match[1], int(match[2]), -1 if match[3] is None else int(match[3]))

"""Nodes of the kernel's accel subsystem (``/sys/class/accel``), whoever's they are.

Numbers are given in the order of registration, and every maker's accelerators share them.
"""

import re
from dataclasses import dataclass

from npu.errors import NpuError
from npu.host import Host
from npu.sysfs import compatibles, read_uevent

CLASS = "/sys/class/accel"
_NODE = re.compile(r"accel[0-9]{1,4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccelNode:
    """An accel node and what its device says about itself; ``modalias`` is empty for none."""

    name: str
    modalias: str
    driver: str | None
    compatible: tuple[str, ...]

    @property
    def path(self) -> str:
        """The device node."""
        return f"/dev/accel/{self.name}"


def accel_nodes(host: Host) -> tuple[AccelNode, ...]:
    """Return all accel nodes; unreadable entries are left out."""
    found: list[AccelNode] = []
    try:
        names = host.names(CLASS)
    except NpuError:
        return ()
    for name in names:
        if _NODE.fullmatch(name) is None:
            continue
        device = f"{CLASS}/{name}/device"
        try:
            uevent = read_uevent(host, device)
        except NpuError:
            continue
        found.append(
            AccelNode(
                name=name,
                modalias=uevent.get("MODALIAS", ""),
                driver=uevent.get("DRIVER") or host.link_name(f"{device}/driver"),
                compatible=compatibles(uevent),
            )
        )
    return tuple(found)

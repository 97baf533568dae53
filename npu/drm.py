"""DRM nodes in sysfs: which card and render nodes belong to which device.

Card and render numbers are independent and change between boots; a pair is found through the
device both hang on.
"""

import re
from dataclasses import dataclass
from typing import Literal

from npu.errors import NpuError
from npu.host import Host
from npu.sysfs import read_uevent

CLASS = "/sys/class/drm"
_NODE = re.compile(r"(card|renderD)([0-9]{1,4})")  # connectors such as card0-HDMI-A-1 do not match


@dataclass(frozen=True, slots=True, kw_only=True)
class DrmNode:
    """A DRM node; ``device`` is the directory of its device, ``anonymous`` an empty uevent."""

    name: str
    role: Literal["card", "render"]
    device: str
    anonymous: bool

    @property
    def path(self) -> str:
        """The device node."""
        return f"/dev/dri/{self.name}"


def drm_nodes(host: Host) -> tuple[DrmNode, ...]:
    """Return all card and render nodes; unreadable entries are left out."""
    found: list[DrmNode] = []
    try:
        names = host.names(CLASS)
    except NpuError:
        return ()
    for name in names:
        match = _NODE.fullmatch(name)
        if match is None:
            continue
        device = f"{CLASS}/{name}/device"
        try:
            found.append(
                DrmNode(
                    name=name,
                    role="card" if match[1] == "card" else "render",
                    device=host.real_path(device),
                    anonymous=not read_uevent(host, device),
                )
            )
        except NpuError:
            continue
    return tuple(found)

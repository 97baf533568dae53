"""The node's side of the devices: their files, the control groups, what the kubelet offers."""

import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from npu import names
from npu.errors import NpuError
from npu.host import Host
from npu.model import Inventory, Npu, Refused
from plugin.config import SharingConfig
from plugin.doctor.finding import Finding, fail, ok, warn

_BY_PATH = "/dev/dri/by-path"


def nodes(host: Host, inventory: Inventory) -> Iterator[Finding]:
    """Judge the device nodes on the node, without opening them."""
    seen: set[str] = set()
    for npu in inventory.npus:
        for node in npu.nodes:
            # Chips of one driver share its manager nodes.
            if node.stable_path not in seen:
                seen.add(node.stable_path)
                yield _node(host, npu, node.stable_path)
    for item in inventory.refused:
        left = _left_behind(host, item)
        if left:
            yield fail(
                "device node",
                f"{', '.join(left)}: still there, and no driver is bound to {item.what}",
                "the driver has crashed or was unloaded, and programs get ENODEV or ENXIO: see "
                "`dmesg`, reboot the board",
            )


def _node(host: Host, npu: Npu, path: str) -> Finding:
    try:
        place = host.real_path(path)
        number = host.device_number(place)
        status = Path(f"{host.root}{place}").lstat()
    except NpuError as error:
        return fail("device node", str(error), f"see `dmesg` for lines of {npu.driver}")
    except OSError as error:
        return fail("device node", f"{path}: {error.strerror}", f"see `dmesg` for {npu.driver}")
    if number is None:
        return fail(
            "device node",
            f"{path}: not a character device",
            "something made a file in its place: remove it, reboot",
        )
    return ok(
        "device node",
        f"{path}: {number[0]}:{number[1]}, owner {status.st_uid}:{status.st_gid}, "
        f"mode {stat.S_IMODE(status.st_mode):04o}",
    )


def _left_behind(host: Host, item: Refused) -> list[str]:
    if item.why != "driver_not_bound":
        return []
    try:
        entries = host.names(_BY_PATH)
    except NpuError:
        return []
    return [f"{_BY_PATH}/{name}" for name in entries if name.startswith(f"platform-{item.what}-")]


def control_groups(host: Host, npus: Collection[Npu]) -> Finding:
    """Judge whether devices of running containers outlive `systemctl daemon-reload`.

    systemd writes the device rules of its units anew then, and finds devices by /dev/char. Where
    those links are missing, containers lose a device that they could open before
    (NVIDIA/nvidia-container-toolkit#48).
    """
    version = "v2" if host.exists("/sys/fs/cgroup/cgroup.controllers") else "v1"
    missing: list[str] = []
    for npu in npus:
        for node in npu.nodes:
            try:
                number = host.device_number(host.real_path(node.stable_path))
            except NpuError:
                continue
            link = None if number is None else f"/dev/char/{number[0]}:{number[1]}"
            if link is not None and not host.exists(link):
                missing.append(link)
    if not missing or host.exists(names.SIMULATED_MARKER):
        return ok("cgroup", f"version {version}")
    return warn(
        "cgroup",
        f"version {version}; no {', '.join(missing)}",
        "under systemd, `systemctl daemon-reload` may take the device from running containers: let "
        "udev make /dev/char (it does by default), or link it to the node by hand",
    )


def sharing(config: SharingConfig) -> Finding:
    """Tell how NPUs are divided, as sharing is the first suspect when calls fail."""
    if config.slots == 1:
        return ok("sharing", "off: one container has the whole NPU")
    whole = f", {', '.join(config.whole_devices)} whole" if config.whole_devices else ""
    return warn(
        "sharing",
        f"{config.slots} slots per NPU{whole}",
        "if calls fail with RKNN_ERR_DEVICE_UNAVAILABLE or `failed to submit`, or the board hangs: "
        "try sharing.slots: 1 first, as some programs and drivers do not bear company",
    )


def offer(
    allocatable: Mapping[str, Collection[str]] | None,
    held: Mapping[str, Collection[str]],
    resources: Collection[str],
) -> Iterator[Finding]:
    """Judge what the kubelet hands out: healthy identifiers by resource, and those in use."""
    if allocatable is None:
        yield ok("offer", "not known: the kubelet does not tell")
        return
    ours = {name: ids for name, ids in allocatable.items() if name in resources and ids}
    if not ours:
        yield fail(
            "offer",
            f"the kubelet has nothing to hand out of {', '.join(sorted(resources))}",
            "Pods stay Pending (`Insufficient ...`): the plugin is not registered, or all devices "
            "are unhealthy or withdrawn; /readyz and /allocations of the plugin on this node say "
            "which",
        )
    for name, identifiers in sorted(ours.items()):
        used = len(set(identifiers) & set(held.get(name, ())))
        text = f"{name}: {used} of {len(identifiers)} in use"
        if used < len(identifiers):
            yield ok("offer", text)
            continue
        yield warn(
            "offer",
            text,
            "a further Pod stays Pending until a holder (below) ends; a Deployment of one replica "
            "needs strategy Recreate, as a rolling update waits for a second NPU",
        )

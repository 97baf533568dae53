"""Driver, libraries and device tree, as far as files tell."""

from collections.abc import Iterator

from npu import library
from npu.errors import DeniedError, MissingError, NpuError
from npu.host import Host
from npu.library import ELF_HEADER_BYTES, driver_too_old, elf_problem, machine_bits, numbers
from npu.model import Inventory, Library, Npu
from plugin.doctor.finding import Finding, fail, ok, warn

_MISC_NODE = "/dev/rknpu"
_COMPATIBLE = "/proc/device-tree/compatible"
#: Boards have been reported to hang under load before this version (armbian/linux-rockchip#157).
_STEADY_DRIVER = (0, 9, 5)
_REFUSED_REMEDIES = {
    "driver_not_bound": "boot a kernel with the driver of this NPU; `dmesg | grep -i npu` on the "
    "node says why a driver that is there was not bound",
    "node_disabled": "enable the NPU in the device tree: an overlay, or the board's configuration "
    "tool, then reboot",
    "no_device_node": "see `dmesg | grep -i rknpu` on the node and whether /dev is a devtmpfs",
    "unreadable": "see the path and the error; the plugin reads sysfs as root",
}


def driver(inventory: Inventory, *, on_node: bool) -> Iterator[Finding]:
    """Judge what a scan found; a container sees neither the node's /dev nor a simulated board."""
    for npu in inventory.npus:
        text = f"{npu.id}: {npu.model}, driver {npu.driver} {npu.driver_version or '?'}, {npu.mode}"
        version = numbers(npu.driver_version)
        if npu.driver == "rknpu" and version is not None and version < _STEADY_DRIVER:
            yield warn(
                "driver",
                text,
                "drivers before 0.9.5 have been reported to hang boards under load: use a newer "
                "kernel, and do not share the NPU",
            )
        else:
            yield ok("driver", text)
    for item in inventory.refused:
        if item.why == "no_device_node" and not on_node:
            yield ok("driver", f"{item.what}: a driver is bound ({item.model or 'NPU'})")
        else:
            yield fail("driver", f"{item.what}: {item.why}: {item.detail}", _remedy(item.why))
    if not inventory.npus and not inventory.refused:
        yield (fail if on_node else warn)(
            "driver",
            "no NPU and no trace of one in sysfs",
            "the board has none (or a simulated one), or its device tree does not describe it: use "
            "the vendor's kernel and device tree",
        )


def _remedy(why: str) -> str:
    return _REFUSED_REMEDIES.get(why, "see the log of the device plugin on that node")


def libraries(host: Host, npu: Npu | None, *, search: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Judge the runtime libraries; ``npu`` is None where none is visible."""
    found = library.find(host, "rknpu", search)
    for item in found:
        yield _library(host, item, npu)
    if not found:
        yield warn(
            "library",
            "no librknnrt.so and no librknnmrt.so in the usual places",
            "bring the library in the image, or put it on the node: a copy in /usr/lib needs no "
            "ldconfig for programs that open it by that path; other programs need their loader's "
            "path, for example LD_LIBRARY_PATH=$NPU_LIBRARY_DIR",
        )


def _library(host: Host, item: Library, npu: Npu | None) -> Finding:
    text = f"{item.path} {item.version or '(version unknown)'}"
    try:
        bits = machine_bits(None if npu is None else npu.model)
        problem = elf_problem(host.read(item.path, ELF_HEADER_BYTES), machine_bits=bits)
    except DeniedError:
        return fail(
            "library",
            f"{text}: not readable for this user",
            f"chmod 0644 {item.path} in the image or on the node",
        )
    except NpuError as error:
        problem = str(error)
    if problem is not None:
        return fail(
            "library", f"{text}: {problem}", "replace it by the library for this board's processor"
        )
    driver_version = None if npu is None else npu.driver_version
    if driver_version is not None:
        text = f"{text}, driver {driver_version}"
    needed = driver_too_old(item, driver_version)
    if needed is not None:
        return warn(
            "library",
            text,
            f"this version asks for driver {needed} or later: use an older library, or a newer "
            "kernel",
        )
    return ok("library", text)


def device_tree(host: Host) -> Finding:
    """Judge whether a program can tell the chip by the device tree."""
    try:
        host.read(_COMPATIBLE)
    except NpuError as error:
        reason = "masked or absent" if isinstance(error, MissingError) else str(error)
        return warn(
            "device tree",
            f"{_COMPATIBLE}: {reason}",
            "C and C++ programs with librknnrt do not need it. RKNN-Toolkit Lite (Python) does: "
            "container runtimes mask /sys/firmware, so run it privileged, or with procMount: "
            "Unmasked and hostUsers: false where the kernel has user namespaces for Pods",
        )
    return ok("device tree", f"{_COMPATIBLE} is readable")


def misc_node(host: Host, modes: frozenset[str]) -> Iterator[Finding]:
    """Judge /dev/rknpu, which people look for and sometimes make up."""
    if host.link_name(_MISC_NODE) is not None:
        yield fail(
            "device node",
            f"{_MISC_NODE} is a symbolic link",
            f"remove it: runtimes take {_MISC_NODE} for a driver in misc mode and then fail with "
            "hw_version = -1",
        )
    elif not host.exists(_MISC_NODE) and modes == {"drm"}:
        yield ok("device node", f"no {_MISC_NODE}, which is normal: the driver is in DRM mode")

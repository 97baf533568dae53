"""What a container was given: environment, device nodes, and whether they open."""

import errno
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from npu import names
from plugin.doctor.finding import Finding, fail, ok, warn

#: A driver that does not answer an open within this time is wedged.
OPEN_SECONDS = 5.0
_FOLDERS = ("/dev/dri", "/dev/accel")
_SINGLE = ("/dev/rknpu",)
_ASK = (
    "let the Pod ask for it: resources.limits `rockchip.com/npu: 1` (or the name the node offers). "
    "A Pod that waits as Pending is told why by `kubectl describe pod`: no node offers the "
    "resource, or all are in use"
)


def granted(environment: Mapping[str, str]) -> Finding:
    """Judge whether the container was given an NPU by the plugin."""
    identifiers = environment.get(names.ENV_DEVICE_IDS)
    if identifiers:
        return ok("grant", f"{names.ENV_DEVICE_IDS}={identifiers}")
    return fail(
        "grant",
        f"{names.ENV_DEVICE_IDS} is not set: this container was not given an NPU",
        f"{_ASK}. A Pod that asked before the plugin had ever registered starts without: delete it",
    )


def nodes(environment: Mapping[str, str], root: Path = Path("/")) -> Iterator[Finding]:
    """Open every device node of an NPU that the container can see, and close it again."""
    named = environment.get(names.ENV_DEVICE)
    found = [f"{folder}/{name}" for folder in _FOLDERS for name in _entries(root, folder)]
    paths = list(dict.fromkeys([*([named] if named else []), *found, *_present(root)]))
    if not paths:
        yield fail("device node", "no device node of an NPU in this container", _ASK)
    for path in paths:
        if path == named and not (root / path.lstrip("/")).exists():
            yield fail(
                "device node",
                f"{path}: named by {names.ENV_DEVICE}, and not there (ENOENT)",
                "the container was given another node than its environment says (did the Pod set "
                "the variable itself?), or the node went away: delete the Pod",
            )
            continue
        yield opened(path, root)


def opened(path: str, root: Path = Path("/")) -> Finding:
    """Open one node for reading and writing, in bounded time, and say what came of it."""
    place = root / path.lstrip("/")
    try:
        status = place.stat()
    except OSError as error:
        return fail("device node", f"{path}: {_named(error)}", _ASK)
    if not stat.S_ISCHR(status.st_mode):
        return fail("device node", f"{path}: not a character device", "remove it from the image")
    outcome: list[OSError | None] = []

    def attempt() -> None:
        try:
            os.close(os.open(place, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
            outcome.append(None)
        except OSError as error:
            outcome.append(error)

    # Nothing ends an open that hangs in the kernel, so it hangs in a thread of its own.
    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(OPEN_SECONDS)
    if not outcome:
        return fail(
            "device node",
            f"{path}: open does not return within {OPEN_SECONDS:g} s",
            "the driver is wedged: see `dmesg` on the node, end the other programs that use the "
            "NPU, reboot the board if it does not recover",
        )
    if outcome[0] is None:
        return ok("device node", f"{path} opens")
    return _refused(path, outcome[0], status)


def _refused(path: str, error: OSError, status: os.stat_result) -> Finding:
    text = f"{path}: {_named(error)}"
    owner = f"owner {status.st_uid}:{status.st_gid}, mode {stat.S_IMODE(status.st_mode):04o}"
    if error.errno == errno.EACCES:
        return fail(
            "device node",
            f"{text}, {owner}, this process {os.geteuid()}:{os.getegid()}",
            f"add the node's group to the Pod: securityContext.supplementalGroups: "
            f"[{status.st_gid}], or let the container runtime give devices to the Pod's user "
            "(device_ownership_from_security_context)",
        )
    if error.errno == errno.EPERM:
        return fail(
            "device node",
            f"{text}: the device cgroup does not allow it",
            f"a hostPath mount shows a device and does not grant it; {_ASK}",
        )
    if error.errno == errno.EBUSY:
        return fail(
            "device node",
            text,
            "another program has it to itself: run the doctor on the node with hostPID to see who",
        )
    if error.errno in (errno.ENODEV, errno.ENXIO):
        return fail(
            "device node",
            f"{text}: the node is there and its driver is not",
            "the driver has crashed or was unloaded: see `dmesg` on the node, reboot the board",
        )
    return fail("device node", text, "see `dmesg` on the node")


def descriptors(soft: int) -> Finding:
    """Judge the limit of open files: large language models take one per NPU buffer."""
    text = f"at most {soft} open files"
    if soft < 4096:  # noqa: PLR2004 - far above the usual 1024, far below what runtimes allow
        return warn(
            "open files",
            text,
            "enough for RKNN; RKLLM needs one per buffer and fails with `Too many open files`: "
            "raise it in the entry point (ulimit -n) or in the container runtime's configuration",
        )
    return ok("open files", text)


def _entries(root: Path, folder: str) -> list[str]:
    try:
        found = sorted(path.name for path in (root / folder.lstrip("/")).iterdir())
    except OSError:
        return []
    return [name for name in found if name.startswith(("card", "renderD", "accel"))]


def _present(root: Path) -> list[str]:
    return [path for path in _SINGLE if (root / path.lstrip("/")).exists()]


def _named(error: OSError) -> str:
    number = error.errno or 0
    return f"{os.strerror(number)} ({errno.errorcode.get(number, number)})"

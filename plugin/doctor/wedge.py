"""Traces of an NPU that hangs: load without a holder, open files, lines of the kernel's log."""

import ctypes
import errno
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from npu.errors import NpuError
from npu.host import Host
from npu.model import Npu
from npu.scan import driver_of
from plugin.doctor.finding import Finding, fail, ok, warn

_FULL_RATIO = 0.99
_LOOKS = 3
_PERIOD_SECONDS = 1.1
#: include/linux/syslog.h
_SYSLOG_ACTION_READ_ALL = 3
_SYSLOG_ACTION_SIZE_BUFFER = 10
_LOG_LIMIT_BYTES = 16 << 20
#: Lines of drivers/rknpu/rknpu_job.c about jobs that did not end.
_TROUBLE = re.compile(
    r"RKNPU.*(failed to wait job|job timeout|soft reset|job abort|failed to get ack on domain)"
)
_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
_DEBUG_PROXY = "rknn_server"
_RESTART = (
    "end the programs that use the NPU; where nobody does, the NPU is stuck and the next program "
    "may hang the board: reboot it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opener:
    """A process that has a device node open; ``pod`` is the UID of its Pod, None without one."""

    pid: int
    command: str
    path: str
    pod: str | None = None


def load(
    host: Host,
    npu: Npu,
    holders: Collection[str] | None,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Finding:
    """Judge the load over three seconds; ``holders`` is None where they are not known."""
    least: dict[int, float] = {}
    for look in range(_LOOKS):
        if look:
            sleep(_PERIOD_SECONDS)
        try:
            cores = driver_of(npu).load(host, npu)
        except NpuError as error:
            return ok("load", f"{npu.id}: not readable here ({error})")
        for core in cores:
            least[core.core] = min(core.ratio, least.get(core.core, core.ratio))
    if not least:
        return ok("load", f"{npu.id}: its driver has no file for it")
    text = f"{npu.id}: " + ", ".join(f"core {n} {ratio:.0%}" for n, ratio in least.items())
    if max(least.values(), default=0.0) < _FULL_RATIO:
        return ok("load", text)
    if holders is None:
        return warn("load", f"{text}; who holds it is not known", _RESTART)
    if not holders:
        return fail("load", f"{text}, and no container holds it", _RESTART)
    return warn(
        "load",
        f"{text}; held by {', '.join(sorted(holders))}",
        "normal under full load; a holder whose calls fail with `failed to submit` has hung it",
    )


def openers(proc: Path, numbers: Collection[tuple[int, int]]) -> tuple[list[Opener], int]:
    """Return who has one of the device ``numbers`` open, and how many processes do not tell."""
    found: list[Opener] = []
    hidden = 0
    for entry in sorted(proc.iterdir()):
        if not entry.name.isdigit():
            continue
        try:
            descriptors = list((entry / "fd").iterdir())
        except OSError as error:
            hidden += error.errno in (errno.EACCES, errno.EPERM)
            continue
        found.extend(_openers_in(entry, descriptors, numbers))
    return found, hidden


def _openers_in(
    entry: Path, descriptors: list[Path], numbers: Collection[tuple[int, int]]
) -> Iterator[Opener]:
    seen: set[tuple[int, int]] = set()
    for descriptor in descriptors:
        try:
            status = descriptor.stat()
        except OSError:
            continue
        number = (os.major(status.st_rdev), os.minor(status.st_rdev))
        if not stat.S_ISCHR(status.st_mode) or number not in numbers or number in seen:
            continue
        seen.add(number)
        try:
            command = (entry / "comm").read_text().strip()
            path = str(descriptor.readlink())
        except OSError:
            continue
        yield Opener(pid=int(entry.name), command=command, path=path, pod=_pod(entry))


def _pod(entry: Path) -> str | None:
    """Return the UID of the Pod that a process belongs to, by its control group."""
    try:
        match = _POD.search((entry / "cgroup").read_text())
    except OSError:
        return None
    # The systemd driver writes underscores, which are separators in names of slices.
    return None if match is None else match[1].replace("_", "-")


def users(
    host: Host, npus: Collection[Npu], holders: Collection[str] | None, proc: Path = Path("/proc")
) -> Finding:
    """Tell who has the NPUs' nodes open, as far as this process may see other processes.

    ``holders`` are containers that were given one, None where that is not known. Opening is not
    using: display servers open every DRM node.
    """
    numbers: set[tuple[int, int]] = set()
    for npu in npus:
        for node in npu.nodes:
            try:
                number = host.device_number(host.real_path(node.stable_path))
            except NpuError:
                continue
            if number is not None:
                numbers.add(number)
    try:
        found, hidden = openers(proc, numbers)
    except OSError as error:
        return ok("open by", f"not known: {error}")
    unseen = f"; {hidden} processes do not let themselves be looked at" if hidden else ""
    if not found:
        return ok("open by", f"nobody that is visible here{unseen}")
    text = ", ".join(_described(item) for item in found) + unseen
    if any(item.command.startswith(_DEBUG_PROXY) for item in found):
        return warn(
            "open by",
            text,
            "rknn_server is a proxy for debugging from a PC, which no workload needs: stop it, as "
            "it uses the NPU beside Kubernetes",
        )
    if holders is not None and not holders:
        return warn(
            "open by",
            text,
            "no container was given an NPU, so this is use beside Kubernetes: end it if it is more "
            "than a display server, which opens every DRM node without using it",
        )
    return ok("open by", text)


def _described(item: Opener) -> str:
    pod = "" if item.pod is None else f", Pod {item.pod}"
    return f"{item.command} (pid {item.pid}, {item.path}{pod})"


def kernel_log(read: Callable[[], list[str] | None]) -> Finding:
    """Judge the kernel's log; ``read`` gives its lines, None where it may not be read."""
    lines = read()
    if lines is None:
        return ok("kernel log", "not readable here; on the node: dmesg | grep RKNPU")
    trouble = [line for line in lines if _TROUBLE.search(line)]
    if not trouble:
        return ok("kernel log", "no line about a job that did not end")
    return warn(
        "kernel log",
        f"{len(trouble)} lines about jobs that did not end, the last: {trouble[-1][:160]}",
        "frequent on boards that share the NPU, with drivers before 0.9.5, and with overclocked "
        "NPUs: use one program at a time, a newer kernel, the vendor's clock",
    )


def read_kernel_log() -> list[str] | None:
    """Return the lines of the kernel's ring buffer, None where it may not be read.

    The system call needs CAP_SYSLOG and no device node, which a container would not be granted.
    """
    libc = ctypes.CDLL(None)
    size = min(libc.klogctl(_SYSLOG_ACTION_SIZE_BUFFER, None, 0), _LOG_LIMIT_BYTES)
    if size <= 0:
        return None
    buffer = ctypes.create_string_buffer(size)
    length = libc.klogctl(_SYSLOG_ACTION_READ_ALL, buffer, size)
    if length < 0:
        return None
    return buffer.raw[:length].decode("utf-8", "replace").splitlines()


def holder_names(held: Mapping[str, Collection[str]], device: str) -> set[str]:
    """Return who holds a device, by holder and the devices each has."""
    return {holder for holder, devices in held.items() if device in devices}

"""Sample workload: opens the NPU its container was given and says what it sees.

One line for people comes first, then JSON lines for scripts. With ``--once`` it ends with 0 where
the NPU opened and 1 where not; otherwise it goes on holding its NPU, idle, until it is stopped.
"""

import argparse
import errno
import json
import os
import signal
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

#: Device nodes of NPUs, and of what goes with them, below ``/dev`` of a container.
PATTERNS = (
    "dri/card*",
    "dri/renderD*",
    "rknpu",
    "accel/accel*",
    "davinci*",
    "dma_heap/*",
    "rga",
    "mpp_service",
)
VARIABLES = ("RKNN_NPU_DEVICE", "NPU_DEVICE_IDS", "NPU_CORE_HINT", "NPU_LIBRARY_DIR")
ADVICE = (
    "ask for one in the container's spec: resources: {limits: {rockchip.com/npu: 1}}; "
    "kubectl describe node shows whether the node offers that resource. If this container asked, "
    "it started before the plugin registered, or the node's container runtime knows no CDI"
)


def environment() -> dict[str, str]:
    """Return the variables that come with an NPU, as far as they are set."""
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}


def device(path: str) -> dict[str, object]:
    """Open a device node as a program would and return what happened."""
    result: dict[str, object] = {"event": "device", "path": path, "opened": False}
    try:
        status = Path(path).stat()
        result["character_device"] = stat.S_ISCHR(status.st_mode)
        result["number"] = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        result["mode"] = stat.filemode(status.st_mode)
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        result["opened"] = True
    except OSError as error:
        number = error.errno or errno.EIO
        result["errno"] = errno.errorcode.get(number, str(number))
        result["error"] = os.strerror(number)
    return result


def devices(main: str | None) -> list[dict[str, object]]:
    """Return the outcome for the device that the platform names and for all others given."""
    found = {str(path) for pattern in PATTERNS for path in Path("/dev").glob(pattern)}
    if main is not None:
        found.add(main)
    return [device(path) for path in sorted(found, key=lambda path: (path != main, path))]


def library(folder: str) -> dict[str, object]:
    """Return what is in the folder of the board's runtime libraries."""
    try:
        return {
            "event": "library",
            "folder": folder,
            "files": sorted(path.name for path in Path(folder).iterdir()),
        }
    except OSError as error:
        return {"event": "library", "folder": folder, "files": [], "error": str(error)}


def opened_npu(main: str | None, results: Sequence[dict[str, object]]) -> dict[str, object] | None:
    """Return the device that counts: the one the platform names, else the first NPU node."""
    if main is not None:
        return next(result for result in results if result["path"] == main)
    nodes = ("/dev/dri/", "/dev/rknpu", "/dev/accel/", "/dev/davinci")
    return next((result for result in results if str(result["path"]).startswith(nodes)), None)


def summary(identifiers: str | None, npu: dict[str, object] | None) -> str:
    """Return the line for people."""
    if npu is None:
        return f"No NPU in this container; {ADVICE}."
    name = f"NPU {identifiers}" if identifiers else "NPU (not given by the platform)"
    if npu["opened"]:
        return f"{name}: opened {npu['path']}."
    hint = {
        "EPERM": "the container's device rules do not allow it",
        "EACCES": "the node's mode does not allow this user; run as root or in the node's group",
        "ENOENT": "the node is not in this container",
        "ENXIO": "no driver answers behind the node",
        "ENODEV": "no driver answers behind the node",
    }.get(str(npu["errno"]), "see the kernel log of the board")
    return f"{name}: cannot open {npu['path']}: {npu['errno']} {npu['error']} ({hint})."


def main(arguments: Sequence[str] | None = None) -> int:
    """Report; then end, or hold the NPU until SIGTERM."""
    parser = argparse.ArgumentParser(description="Opens the NPU it was given and reports.")
    parser.add_argument("--once", action="store_true", help="end with 0 where the NPU opened")
    once = parser.parse_args(arguments).once
    # The kernel drops signals that PID 1 neither handles nor blocks. Blocked ones wait for sigwait;
    # a handler that sets an Event would deadlock where it interrupts that Event's own wait.
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    variables = environment()
    named = variables.get("RKNN_NPU_DEVICE")
    results = devices(named)
    npu = opened_npu(named, results)
    ok = npu is not None and bool(npu["opened"])
    lines: list[dict[str, object]] = [{"event": "environment", "variables": variables}, *results]
    if "NPU_LIBRARY_DIR" in variables:
        lines.append(library(variables["NPU_LIBRARY_DIR"]))
    lines.append({"event": "result", "ok": ok, "devices": variables.get("NPU_DEVICE_IDS")})
    print(summary(variables.get("NPU_DEVICE_IDS"), npu), flush=True)
    for line in lines:
        print(json.dumps(line), flush=True)
    if once:
        return 0 if ok else 1
    signal.sigwait(signals)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The emulated machine: its command line, its start and its end.

No KVM: it is rarely to be had where this runs, and an emulated processor is the same everywhere.
The guest's network is QEMU's own (user mode): the guest reaches what this machine reaches, nothing
reaches the guest, and no interface is made.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROGRAM: Final = "qemu-system-x86_64"
#: Where QEMU's user mode network answers name look-ups (slirp's default).
NAME_SERVER: Final = "10.0.2.3"
VISITOR_LABEL: Final = "visitor"
# Linux mistrusts the time stamp counter of an emulated AMD processor, although QEMU's is the same
# on all; the clock it falls back to is an emulated device, asked thousands of times per second.
_KERNEL_ARGUMENTS: Final = (
    "root=/dev/vda rw console=ttyS0 panic=5 mitigations=off tsc=reliable clocksource=tsc"
)
_END_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the guest is made of. Memory in MiB; ``disk`` is never written, ``visitor`` is."""

    kernel: Path
    initrd: Path
    disk: Path
    visitor: Path
    console: Path
    """What kernel and systemd say."""
    report: Path
    """What the visitor says, on the second serial port."""
    memory_mebibytes: int = 4096
    processors: int = 2


def command(machine: Machine) -> list[str]:
    """Return QEMU's command line."""
    # cache=unsafe: nothing of a run survives it. Wheels of today need more than the default
    # processor; five-level page tables only slow the emulation.
    drive = "format=raw,if=virtio,cache=unsafe"
    return [
        *(PROGRAM, "-name", "npu-fresh", "-nodefaults", "-no-user-config", "-no-reboot"),
        *("-display", "none", "-accel", "tcg,thread=multi", "-cpu", "max,la57=off"),
        *("-smp", str(machine.processors), "-m", str(machine.memory_mebibytes)),
        *("-kernel", str(machine.kernel), "-initrd", str(machine.initrd)),
        *("-append", _KERNEL_ARGUMENTS),
        *("-drive", f"file={machine.disk},snapshot=on,{drive}"),
        *("-drive", f"file={machine.visitor},{drive}"),
        *("-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net"),
        *("-device", "virtio-rng-pci"),
        *("-serial", f"file:{machine.console}", "-serial", f"file:{machine.report}"),
    ]


@contextmanager
def running(
    machine: Machine, *, work: Path, niceness: int = 0
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the machine while the body runs; then it is ended, whatever state it is in.

    Changes to ``machine.disk`` go to a nameless file in ``work``. The kernel ends QEMU should
    this process be killed (PR_SET_PDEATHSIG).
    """
    process = subprocess.Popen(
        ["nice", "-n", str(niceness), "setpriv", "--pdeathsig", "TERM", *command(machine)],
        stdin=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(work)},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            end = time.monotonic() + _END_SECONDS
            while process.poll() is None and time.monotonic() < end:
                time.sleep(0.1)
            process.kill()
            process.wait()

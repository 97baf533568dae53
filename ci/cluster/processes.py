"""Find and end processes by the namespace they live in, never by a remembered number.

A process number from a file may belong to somebody else after a crash or a reboot. Everything
an instance starts lives in one of its network or process namespaces, and the kernel says for
each process which those are; so there is no such file.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ci.patience import patient

_POLL_SECONDS = 0.1


class StubbornProcessError(RuntimeError):
    """A process is still there after SIGKILL and a fair wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A running process. Namespaces are inode numbers of nsfs, see namespaces(7)."""

    pid: int
    net_namespace: int
    pid_namespace: int
    argv: tuple[str, ...]
    innermost_pid: int
    """Its number as the process itself sees it: 1 for the init of a process namespace."""

    @property
    def program(self) -> str:
        """Name of the program, without its folder."""
        return Path(self.argv[0]).name if self.argv else ""


def running(proc: Path = Path("/proc")) -> list[Process]:
    """Return all processes whose namespaces can be read. Zombies have none and are left out."""
    found = []
    for folder in proc.iterdir():
        if folder.name.isdigit():
            process = _read(folder)
            if process is not None:
                found.append(process)
    return found


def _read(folder: Path) -> Process | None:
    try:
        argv = (folder / "cmdline").read_bytes().rstrip(b"\0")
        status = (folder / "status").read_text(errors="replace")
        numbers = next(line for line in status.splitlines() if line.startswith("NSpid:"))
        return Process(
            pid=int(folder.name),
            net_namespace=(folder / "ns" / "net").stat().st_ino,
            pid_namespace=(folder / "ns" / "pid").stat().st_ino,
            argv=tuple(argv.decode(errors="replace").split("\0")) if argv else (),
            innermost_pid=int(numbers.split()[-1]),
        )
    except (OSError, StopIteration):
        return None


def send(processes: Iterable[Process], signal_number: signal.Signals) -> None:
    """Send a signal to those of ``processes`` that are still the same processes.

    The process is held by a descriptor (pidfd_open(2)) while its namespaces are compared
    again, so that a number reused in between is never hit.
    """
    for process in processes:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(process.pid)
            try:
                now = _read(Path("/proc") / str(process.pid))
                if now is not None and _same(now, process):
                    signal.pidfd_send_signal(descriptor, signal_number)
            finally:
                os.close(descriptor)


def _same(one: Process, other: Process) -> bool:
    return (one.net_namespace, one.pid_namespace) == (other.net_namespace, other.pid_namespace)


def end(matching: Callable[[Process], bool], *, patience_seconds: float, what: str) -> None:
    """End every process that matches: SIGTERM, ``patience_seconds`` later SIGKILL.

    Asks again after each round, so that children started meanwhile do not escape. With no
    patience SIGKILL is the first signal. Raises ``StubbornProcessError`` if that fails.
    """

    def found() -> list[Process]:
        return [process for process in running() if matching(process)]

    if patience_seconds > 0:
        send(found(), signal.SIGTERM)
        if wait_until(lambda: not found(), patience_seconds):
            return
    for _ in range(5):
        send(found(), signal.SIGKILL)
        if wait_until(lambda: not found(), 2.0):
            return
    numbers = ", ".join(str(process.pid) for process in found())
    message = f"{what} does not end after SIGKILL (processes {numbers}): look into `dmesg`"
    raise StubbornProcessError(message)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll ``condition`` until it holds; tell whether it did within ``seconds``.

    The time is stretched on machines known to be slow, see ``ci.patience``.
    """
    deadline = time.monotonic() + patient(seconds)
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True

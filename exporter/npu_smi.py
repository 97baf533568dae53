"""Runs ``npu-smi``, which tells about Ascend chips, in a child process.

The vendor's library can hang in the kernel and crash its process, so it never comes into this one.
A child that does not end is killed, and while it cannot even be killed no second one is started.
"""

import os
import selectors
import shlex
import signal
import subprocess
import time
from contextlib import suppress
from typing import Final

from exporter.telemetry import TelemetryError
from npu.drivers.ascend_smi import LIMIT_BYTES

_RUN_SECONDS = 8.0
_END_SECONDS = 1.0
#: Value of the option that looks in the usual places.
AUTO: Final = "auto"
_PROGRAMS = (
    "/usr/local/bin/npu-smi",
    "/usr/local/sbin/npu-smi",
    "/usr/local/Ascend/driver/tools/npu-smi",
)
_LIBRARIES = (
    "/usr/local/Ascend/driver/lib64/common",
    "/usr/local/Ascend/driver/lib64/driver",
    "/usr/local/Ascend/driver/lib64",
    "/usr/local/dcmi",
    "/usr/lib64",
)


class NpuSmi:
    """Runs ``npu-smi info``.

    ``command`` is the program with its arguments, or ``auto``; ``root`` is where the board's files
    are, among them the driver's libraries.
    """

    def __init__(
        self,
        command: str,
        root: str | os.PathLike[str],
        *,
        timeout_seconds: float = _RUN_SECONDS,
    ) -> None:
        self._command = command
        self._root = os.fspath(root).rstrip("/")
        self._timeout = timeout_seconds
        self._stuck: subprocess.Popen[bytes] | None = None

    def __call__(self) -> str:
        """Run it to its end, or kill it; raises TelemetryError."""
        if self._stuck is not None:
            if self._stuck.poll() is None:
                raise TelemetryError("npu-smi hangs in the kernel and cannot be killed")
            self._stuck = None
        argv = [*self._program(), "info"]
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=self._environment(),
            )
        except OSError as error:
            raise TelemetryError(f"{argv[0]} cannot be started: {error.strerror}") from error
        try:
            output = self._read(child)
        finally:
            self._end(child)
        if child.returncode:
            last = output.decode(errors="replace").strip().splitlines()[-1:]
            raise TelemetryError(f"npu-smi info failed ({child.returncode}): {''.join(last)[:200]}")
        return output.decode(errors="replace")

    def _program(self) -> list[str]:
        if self._command != AUTO:
            return shlex.split(self._command)
        for path in _PROGRAMS:
            if os.access(f"{self._root}{path}", os.X_OK):
                return [f"{self._root}{path}"]
        raise TelemetryError(f"no npu-smi on this board; looked for {', '.join(_PROGRAMS)}")

    def _environment(self) -> dict[str, str]:
        libraries = ":".join(f"{self._root}{path}" for path in _LIBRARIES)
        return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "LD_LIBRARY_PATH": libraries}

    def _read(self, child: subprocess.Popen[bytes]) -> bytes:
        """Return what the child says, within time and bounds."""
        stream = child.stdout
        if stream is None:
            return b""
        deadline = time.monotonic() + self._timeout
        output = b""
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while selector.select(max(0.0, deadline - time.monotonic())):
                piece = os.read(stream.fileno(), 1 << 16)
                output += piece
                if not piece:
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(max(0.0, deadline - time.monotonic()))
                    if child.returncode is not None:
                        return output
                    break
                if len(output) > LIMIT_BYTES:
                    raise TelemetryError(f"npu-smi says more than {LIMIT_BYTES} bytes")
        raise TelemetryError(f"npu-smi info did not end within {self._timeout:g} s")

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """Make sure that the child is gone, or remember it."""
        if child.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            try:
                child.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._stuck = child
        if child.stdout is not None:
            child.stdout.close()

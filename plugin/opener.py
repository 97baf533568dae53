"""Opening a device for real, and loading its library: a probe that needs a privileged container.

Both happen in a process of their own: a driver that hangs in the kernel keeps that process, not
this one, and a library that crashes takes only it along.
"""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from npu.errors import NpuError
from npu.host import Host
from npu.model import Npu
from plugin.health import GOOD, Finding

TIMEOUT_SECONDS: Final = 5.0
_REAP_SECONDS: Final = 0.5
#: Program of the child: a line of JSON per path with errno or the loader's text, null for success.
_CHILD: Final = """
import ctypes, json, os, sys
for path in json.loads(sys.argv[1]):
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        said = None
    except OSError as error:
        said = error.errno
    print(json.dumps([path, said]), flush=True)
for path in json.loads(sys.argv[2]):
    print(json.dumps([path, ""]), flush=True)
    try:
        ctypes.CDLL(path)
        said = None
    except OSError as error:
        said = str(error)
    print(json.dumps([path, said]), flush=True)
"""
_DRIVER_GONE: Final = frozenset({errno.ENODEV, errno.ENXIO, errno.EIO})
_NOT_ALLOWED: Final = frozenset({errno.EPERM, errno.EACCES})
#: What the loader says where a library needs another one that the plugin's image lacks.
_LACKS_ANOTHER: Final = "cannot open shared object file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the child said of each path, and how it ended; ``status`` None: not in time."""

    said: tuple[tuple[str, int | str | None], ...]
    status: int | None


Run = Callable[[Sequence[str], Sequence[str]], Outcome]


class Opener:
    """Opens nodes, and with ``load_libraries`` loads libraries, of one NPU after the other.

    ``run`` starts the child; a parameter for tests.
    """

    def __init__(
        self, host: Host, *, open_nodes: bool, load_libraries: bool, run: Run | None = None
    ) -> None:
        self._host = host
        self._open_nodes = open_nodes
        self._load_libraries = load_libraries
        self._run = Child().run if run is None else run

    def check(self, npu: Npu) -> Finding:
        """Probe one NPU; takes at most the time limit."""
        nodes = [self._visible(n.path) for n in npu.nodes] if self._open_nodes else []
        libraries = (
            [self._visible(item.path) for item in npu.libraries] if self._load_libraries else []
        )
        if not nodes and not libraries:
            return GOOD
        return judge(self._run(nodes, libraries))

    def _visible(self, path: str) -> str:
        """Return a path of the board as this process sees it."""
        try:
            return f"{self._host.root}{self._host.real_path(path)}"
        except NpuError:
            return f"{self._host.root}{path}"


def judge(outcome: Outcome) -> Finding:
    """Return what the child's words mean. Pure.

    Bad: a node that does not open although the driver's own answer is "no such device", a library
    that does not load or ends the process, and a child that does not come back. What only says that
    this container may not look, or that many programs are running, is unknown.
    """
    said = dict(outcome.said)
    nodes = {path: word for path, word in said.items() if not isinstance(word, str)}
    libraries = {path: word for path, word in said.items() if isinstance(word, str)}
    if outcome.status is None:
        return _silent(next((path for path, word in libraries.items() if not word), None))
    for path, number in nodes.items():
        if number in _DRIVER_GONE:
            text = f"{path}: {os.strerror(number)} ({errno.errorcode[number]}); see dmesg"
            return Finding(verdict="bad", reason="open_failed", detail=text)
    for path, word in libraries.items():
        text = word or f"loading it ended the process ({_ended(outcome.status)})"
        if _LACKS_ANOTHER in text:
            return Finding(verdict="unknown", reason="unmeasured", detail=text)
        return Finding(verdict="bad", reason="library_unusable", detail=f"{path}: {text}")
    for path, number in nodes.items():
        if number is not None:
            hint = ": openDevice needs a privileged container" if number in _NOT_ALLOWED else ""
            text = f"{path}: {os.strerror(number)} ({errno.errorcode.get(number, number)}){hint}"
            return Finding(verdict="unknown", reason="unmeasured", detail=text)
    return GOOD


def _silent(library: str | None) -> Finding:
    """Return what it means that the child did not end, while it loaded ``library`` if given."""
    limit = f"within {TIMEOUT_SECONDS:g} s"
    if library is not None:
        text = f"{library}: loading it does not end {limit}"
        return Finding(verdict="bad", reason="library_unusable", detail=text)
    text = f"the driver does not answer an open {limit}; see dmesg on the node"
    return Finding(verdict="bad", reason="open_timeout", detail=text)


def _ended(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"


class Child:
    """Starts the child; while one hangs in the kernel, which no signal ends, no second one."""

    def __init__(self, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._timeout = timeout_seconds
        self._hanging: subprocess.Popen[str] | None = None
        self._hangs = Outcome(said=(), status=None)

    def run(self, nodes: Sequence[str], libraries: Sequence[str]) -> Outcome:
        """Return what came of opening ``nodes`` and loading ``libraries``."""
        if self._hanging is not None:
            if self._hanging.poll() is None:
                return self._hangs
            self._hanging.communicate()
            self._hanging = None
        # Neither the user's packages nor the environment: nothing but the interpreter.
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _CHILD, json.dumps(nodes), json.dumps(libraries)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            output, _ = child.communicate(timeout=self._timeout)
        except subprocess.TimeoutExpired:
            child.kill()
            try:
                output, _ = child.communicate(timeout=_REAP_SECONDS)
            except subprocess.TimeoutExpired as error:
                self._hanging = child
                output = (error.output or b"").decode(errors="replace")
            self._hangs = Outcome(said=tuple(_words(output)), status=None)
            return self._hangs
        return Outcome(said=tuple(_words(output)), status=child.returncode)


def _words(output: str) -> list[tuple[str, int | str | None]]:
    found: list[tuple[str, int | str | None]] = []
    for line in output.splitlines():
        try:
            path, word = json.loads(line)
        except ValueError:
            continue  # a library may print whatever it likes
        found.append((path, word))
    return found

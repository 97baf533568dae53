"""The two device plugins as processes, each with its mounts and a stopwatch of its own."""

import json
import os
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from ci.bench import programs
from images.oci import Image
from npu import catalogue
from npu.layout import expand
from npu.tree import SIMULATED_DEVICE, materialise

#: What a container runtime would do, as far as Python and gRPC need it.
_IN_IMAGE = """\
set -e
cd "$1"
mount -t proc proc proc
for node in null urandom; do mount --bind "/dev/$node" "dev/$node"; done
shift
exec /usr/sbin/chroot . "$@"
"""
#: The sample plugin has the kubelet's directory built in.
_WITH_DIRECTORY = """\
set -e
mount -t tmpfs tmpfs /var/lib
mkdir -p "$1"
mount --bind "$2" "$1"
exec "$3"
"""
_STOP_SECONDS = 15


class PeerError(RuntimeError):
    """A plugin or its stopwatch did not do what was asked."""


class Known(msgspec.Struct, frozen=True):
    """A registered plugin; times are nanoseconds of the wall clock."""

    resource: str
    devices: list[str]
    appeared: int
    registered: int
    listed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A plugin that can be started: ``command`` registers in the kubelet's ``directory``."""

    name: str
    directory: Path
    command: tuple[str, ...]
    environment: Mapping[str, str]


class Peer:
    """A plugin with its stopwatch, which plays the kubelet in ``program.directory``."""

    def __init__(self, program: Program, stopwatch: Path, log: IO[bytes]) -> None:
        self.name = program.name
        self._program = program
        self._log = log
        self._stopwatch = subprocess.Popen(
            [stopwatch, program.directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._plugin: subprocess.Popen[bytes] | None = None
        self._device = ""
        #: When the plugin was started, in nanoseconds of the wall clock.
        self.started = 0

    def start_kubelet(self) -> None:
        """Delete all sockets and serve ``kubelet.sock``, as a starting kubelet does."""
        self._ask({"do": "start"})

    def start(self) -> None:
        """Start the plugin."""
        self.started = time.time_ns()
        self._plugin = subprocess.Popen(
            ["unshare", "--mount", *self._program.command],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=self._program.environment,
        )

    def await_list(self) -> Known:
        """Wait until the plugin has registered and sent its list."""
        known = msgspec.json.decode(self._ask({"do": "await"}), type=Known)
        self._device = known.devices[0]
        return known

    def allocate(self, calls: int, pause_seconds: float) -> list[int]:
        """Return how long each of ``calls`` Allocates took, in nanoseconds."""
        order: dict[str, object] = {"do": "allocate", "device": self._device, "calls": calls}
        answer = self._ask({**order, "pause": round(pause_seconds * 1e9)})
        return msgspec.json.decode(answer, type=list[int])

    @property
    def pid(self) -> int:
        """Process number of the running plugin."""
        if self._plugin is None or self._plugin.poll() is not None:
            raise PeerError(f"{self.name} does not run; see {self._log.name}")
        return self._plugin.pid

    def stop(self) -> None:
        """End the plugin as a kubelet would."""
        plugin, self._plugin = self._plugin, None
        if plugin is not None:
            plugin.terminate()
            try:
                plugin.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                plugin.kill()
                plugin.wait()

    def close(self) -> None:
        """End plugin and stopwatch."""
        self.stop()
        self._stopwatch.kill()
        self._stopwatch.communicate()

    def _ask(self, order: Mapping[str, object]) -> bytes:
        given, taken = self._stopwatch.stdin, self._stopwatch.stdout
        if given is None or taken is None:
            raise PeerError("the stopwatch has no pipes")
        given.write(json.dumps(order).encode() + b"\n")
        given.flush()
        answer = taken.readline()
        if not answer or answer.startswith(b'{"error"'):
            said = answer.decode().strip() or "no answer"
            raise PeerError(f"{self.name}: {order['do']}: {said}; see {self._log.name}")
        return answer


@contextmanager
def both(image: Image, cache: Path, place: Path) -> Iterator[tuple[Peer, Peer]]:
    """Yield our plugin from ``image`` and Go's, neither started; ``place`` has a short path."""
    folder = programs.build(cache)
    with ExitStack() as stack:
        peers: list[Peer] = []
        for program in (_ours(image, place / "image"), _go(folder / programs.PEER, place / "go")):
            log = stack.enter_context((place / f"{program.name.replace(' ', '-')}.log").open("wb"))
            peers.append(Peer(program, folder / programs.KUBELET, log))
            stack.callback(peers[-1].close)
        yield peers[0], peers[1]


def _ours(image: Image, root: Path) -> Program:
    root.mkdir()
    for layer in image.layers:
        with tarfile.open(layer.path) as archive:
            archive.extractall(root, filter="tar")
    for folder in ("dev", "proc"):
        (root / folder).mkdir(exist_ok=True)
    for node in ("null", "urandom"):
        (root / "dev" / node).touch()
    board = expand(catalogue.load("rk3588"), SIMULATED_DEVICE)
    materialise(board, root / "board", device_nodes=True)
    process = json.loads(image.config)["config"]
    return Program(
        name="npu-platform",
        directory=_kubelet_dir(root / "kubelet"),
        command=(
            *("sh", "-c", _IN_IMAGE, "sh", str(root), *process["Entrypoint"]),
            *("--root=/board", "--kubelet-dir=/kubelet", "--bind=127.0.0.1:0"),
        ),
        environment=dict(word.split("=", 1) for word in process["Env"]),
    )


def _go(binary: Path, directory: Path) -> Program:
    return Program(
        name="Go sample plugin",
        directory=_kubelet_dir(directory),
        command=(
            *("sh", "-c", _WITH_DIRECTORY, "sh"),
            *(str(programs.PEER_DIRECTORY), str(directory), str(binary)),
        ),
        environment=dict(os.environ),
    )


def _kubelet_dir(path: Path) -> Path:
    for name in ("device-plugins", "pod-resources"):
        (path / name).mkdir(parents=True)
    return path

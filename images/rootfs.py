"""Start programs of an image as a container would, without a container runtime.

Own mount and process namespace, read-only root, PID 1, uid 65532, the image's environment and
nothing else. Needs root. Images of another architecture run under qemu's user-mode emulation.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ci.debian import Archive, host_architecture, unpack_atomically
from ci.lock import exclusive
from images.debianbase import SUITE
from images.oci import Image

_EMULATORS = {"amd64": "qemu-x86_64", "arm64": "qemu-aarch64"}
# Emulation is some fifteen times slower; this covers it on a busy machine.
_DEADLINE_SECONDS = 300
_STOP_SECONDS = 30
_BETWEEN_SIGNALS_SECONDS = 0.2
_START = """\
set -e
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
mount --bind /dev/null "$1/dev/null"
mount -o remount,bind,ro "$1"
root=$1
shift
exec chroot --userspec=65532:65532 "$root" "$@"
"""


class StartError(RuntimeError):
    """A program of an image ended before it was ready, or did not end when told to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """An image laid out at ``path``; ``emulator`` are the words before a program."""

    path: Path
    emulator: tuple[str, ...]
    entrypoint: tuple[str, ...]
    environment: Mapping[str, str]

    def command(self, *program: str) -> list[str]:
        """Return the command that runs ``program`` as PID 1 of a container."""
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        script = ["sh", "-c", _START, "sh", str(self.path)]
        return [*unshare, *script, *self.emulator, *program]

    def run(self, *program: str) -> "subprocess.CompletedProcess[str]":
        """Run ``program`` to its end."""
        return subprocess.run(
            self.command(*program),
            capture_output=True,
            text=True,
            timeout=_DEADLINE_SECONDS,
            check=False,
            env=self._environment(),
        )

    def terminate_twice(self, *program: str, ready: str) -> tuple[int, str]:
        """Send SIGTERM, and again where that is not enough; return exit status and output.

        ``ready`` is text in the output after which the program is up.
        """
        with subprocess.Popen(
            self.command(*program),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment(),
        ) as process:
            try:
                output = _read_until(process, ready)
                inner = _only_child(process.pid)
                os.kill(inner, signal.SIGTERM)
                time.sleep(_BETWEEN_SIGNALS_SECONDS)
                if _is_alive(inner):
                    os.kill(inner, signal.SIGTERM)
                rest, _ = process.communicate(timeout=_STOP_SECONDS)
                return process.returncode, output + rest
            except subprocess.TimeoutExpired as error:
                raise StartError(f"two SIGTERM did not end it in {_STOP_SECONDS} s") from error
            finally:
                process.kill()

    def _environment(self) -> dict[str, str]:
        # `unshare` and `sh` are found by the host's PATH; the image's own is within it.
        return dict(self.environment) | {"PATH": os.environ["PATH"]}


@contextmanager
def laid_out(image: Image, cache: Path, files: Mapping[str, str]) -> Iterator[Root]:
    """Lay ``image`` and ``files`` (content by path) out for the time of the body."""
    folder = cache / "images" / "verify"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        root = Path(name)
        root.chmod(0o755)
        for layer in image.layers:
            with tarfile.open(layer.path) as archive:
                for entry in archive:
                    archive.extract(entry, root, filter="tar")
        (root / "dev" / "null").touch()
        for path, content in files.items():
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_text(content)
        config = json.loads(image.config)["config"]
        yield Root(
            path=root,
            emulator=_emulator(image.arch, root, cache),
            entrypoint=tuple(config["Entrypoint"]),
            environment=dict(word.split("=", 1) for word in config["Env"]),
        )


def _emulator(arch: str, root: Path, cache: Path) -> tuple[str, ...]:
    host = host_architecture()
    if arch == host:
        return ()
    tree = cache / "debian" / "trees" / f"qemu-user-{SUITE}"
    with exclusive(tree.with_name(f".{tree.name}.lock"), reason="it is unpacking qemu"):
        if not tree.is_dir():
            print("fetching qemu-user (71 MB), once", file=sys.stderr, flush=True)
            unpack_atomically(Archive(SUITE, host, cache).fetch(["qemu-user"]).values(), tree)
    shutil.copy(tree / "usr" / "bin" / _EMULATORS[arch], root / "emulator")
    return ("/emulator",)


def _read_until(process: "subprocess.Popen[str]", text: str) -> str:
    seen = []
    for line in process.stdout or ():
        seen.append(line)
        if text in line:
            return "".join(seen)
    raise StartError(f"the program ended before it said {text!r}: {''.join(seen)}")


def _only_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

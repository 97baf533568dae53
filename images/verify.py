"""Run what is in an image: the checks that a build alone cannot give.

An image is laid out in a folder and started there as a container would be: own mount and process
namespace, read-only root, PID 1, uid 65532. Needs root. Images of another architecture run
under qemu's user-mode emulation.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ci.debian import Archive, host_architecture, unpack_atomically
from images.debianbase import SUITE
from images.oci import Image

_UID = 65532
_PYTHON = "/usr/bin/python3.13"
_EMULATORS = {"amd64": "qemu-x86_64", "arm64": "qemu-aarch64"}
# Emulation is some fifteen times slower; the sum covers a busy machine.
_DEADLINE_SECONDS = 300
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "busybox", "zsh", "ksh"})
_PROBE = Path(__file__).with_name("probe.py")
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


class VerifyError(AssertionError):
    """An image does not hold what it promises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """An image laid out at ``path``; ``emulator`` are the words before a program."""

    path: Path
    emulator: tuple[str, ...]

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
            env={},
        )


@contextmanager
def laid_out(image: Image, cache: Path) -> Iterator[Root]:
    """Lay ``image`` out in a folder for the time of the body."""
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
        yield Root(path=root, emulator=_emulator(image.arch, root, cache))


def _emulator(arch: str, root: Path, cache: Path) -> tuple[str, ...]:
    host = host_architecture()
    if arch == host:
        return ()
    tree = cache / "debian" / "trees" / f"qemu-user-{SUITE}"
    if not tree.is_dir():
        print("fetching qemu-user (71 MB), once", file=sys.stderr, flush=True)
        unpack_atomically(Archive(SUITE, host, cache).fetch(["qemu-user"]).values(), tree)
    shutil.copy(tree / "usr" / "bin" / _EMULATORS[arch], root / "emulator")
    return ("/emulator",)


def entrypoint(image: Image) -> list[str]:
    """Return the words an image starts with."""
    words: list[str] = json.loads(image.config)["config"]["Entrypoint"]
    return words


def check_files(image: Image) -> None:
    """No set-id bits, no devices, no shell; terms and metadata of every component."""
    names: set[str] = set()
    for layer in image.layers:
        with tarfile.open(layer.path) as archive:
            for entry in archive:
                names.add(entry.name)
                _expect(entry.mode & 0o6000 == 0, f"/{entry.name} has a set-id bit")
                _expect(
                    entry.isdir() or entry.issym() or entry.isreg(), f"/{entry.name} is special"
                )
    shells = sorted(name for name in names if name.rpartition("/")[2] in _SHELLS)
    _expect(not shells, f"shells: {shells}")
    for name in sorted(names):
        if name.startswith("var/lib/dpkg/status.d/"):
            package = name.rpartition("/")[2]
            documented = {f"usr/share/doc/{package}", f"usr/share/doc/{package}/copyright"}
            _expect(bool(documented & names), f"no terms of Debian package {package}")
        if name.endswith(".dist-info"):
            _expect(f"{name}/METADATA" in names, f"no metadata in {name}")
            terms = [one for one in names if one.startswith(f"{name}/") and _is_licence(one)]
            _expect(bool(terms), f"no licence in {name}")


def _is_licence(name: str) -> bool:
    last = name.rpartition("/")[2].upper()
    return "/licenses/" in name or last.startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE"))


def check_modules(root: Root) -> int:
    """Every shipped module imports, the fast C cores are in use; return how many were loaded."""
    done = root.run(_PYTHON, "-I", "-B", "-c", _PROBE.read_text())
    _expect(done.returncode == 0, f"the probe failed: {done.stderr.strip()}")
    report = json.loads(done.stdout.splitlines()[-1])
    _expect(not report["failed"], f"modules that cannot be imported: {report['failed']}")
    _expect(report["uid"] == _UID, f"uid {report['uid']}")
    _expect(report["pid"] == 1, f"pid {report['pid']}")
    _expect(report["utf8"], "text files are not UTF-8 by default")
    _expect(report["authorities"] > 0, "TLS knows no certificate authority")
    _expect(report["protobuf"] in (None, "upb"), f"protobuf core: {report['protobuf']}")
    _expect(report["libyaml"] in (None, True), "PyYAML runs without libyaml")
    return int(report["modules"])


def check_version(root: Root, image: Image) -> str:
    """``--version`` and ``--help`` answer; return the version line."""
    start = entrypoint(image)
    described = root.run(*start, "--help")
    _expect(described.returncode == 0, f"--help ended with {described.returncode}")
    _expect("usage:" in described.stdout, f"--help said {described.stdout!r}")
    done = root.run(*start, "--version")
    _expect(done.returncode == 0, f"--version ended with {done.returncode}: {done.stderr}")
    return done.stdout.strip()


def check_signals(root: Root, image: Image, arguments: Sequence[str], ready: str) -> int:
    """Two SIGTERM end PID 1; return its status as a container runtime would show it.

    ``ready`` is text on standard error after which the program is up.
    """
    command = root.command(*entrypoint(image), *arguments)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={}) as process:
        try:
            _wait_for_line(process, ready)
            inner = _child_of(process.pid)
            os.kill(inner, signal.SIGTERM)
            time.sleep(0.2)
            if _is_alive(inner):
                os.kill(inner, signal.SIGTERM)
            return process.wait(timeout=_DEADLINE_SECONDS)
        finally:
            process.kill()


def _wait_for_line(process: "subprocess.Popen[str]", text: str) -> None:
    if process.stderr is None:
        raise VerifyError("no standard error to read")
    seen = []
    for line in process.stderr:
        seen.append(line)
        if text in line:
            return
    raise VerifyError(f"the program ended before it said {text!r}: {''.join(seen)}")


def _child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _expect(holds: bool, complaint: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not holds:
        raise VerifyError(complaint)

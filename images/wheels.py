"""Python packages for an image: wheels of the target's platform, pinned by hash.

pip downloads and verifies them; nothing is installed, built or run.
"""

import re
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ci.command import run

#: The images' Python, and the newest glibc a wheel may ask for (that of Debian 13).
PYTHON = "3.13"
_GLIBC = (2, 41)
_OLDEST_GLIBC_MINOR = 17
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_NAME = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>\S+)")


class WheelError(RuntimeError):
    """A Python package is not pinned or not to be had for the platform."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One pinned package. ``hashes`` covers the files of every platform."""

    name: str
    version: str
    hashes: tuple[str, ...]

    def line(self) -> str:
        """Return the requirement in pip's notation."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash={one}" for one in self.hashes)])


def parse(text: str) -> dict[str, Requirement]:
    """Read a requirements file with hashes, as pip-compile writes it, by normalized name."""
    found = {}
    for raw in text.replace("\\\n", " ").splitlines():
        line = raw.partition("#")[0].strip()
        match = _NAME.match(line)
        if match:
            name = normalized(match["name"])
            hashes = tuple(re.findall(r"--hash=(\S+)", line))
            found[name] = Requirement(name=name, version=match["version"], hashes=hashes)
    return found


def normalized(name: str) -> str:
    """Return a package name as the index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def platforms(arch: str) -> list[str]:
    """Return the platform tags the base can run, the newest first (PEP 600)."""
    machine = _MACHINES[arch]
    major, newest = _GLIBC
    tags = [
        f"manylinux_{major}_{minor}_{machine}"
        for minor in range(newest, _OLDEST_GLIBC_MINOR - 1, -1)
    ]
    return [*tags, f"manylinux2014_{machine}"]


def provide(requirements: Iterable[Requirement], arch: str, store: Path) -> list[Path]:
    """Return the wheel of each requirement for ``arch``, downloaded once into ``store``."""
    wanted = list(requirements)
    folders = [store / arch / f"{one.name}-{one.version}" for one in wanted]
    missing = [
        one for one, folder in zip(wanted, folders, strict=True) if not any(folder.glob("*.whl"))
    ]
    if missing:
        names = ", ".join(f"{one.name} {one.version}" for one in missing)
        print(f"fetching wheels for {arch}: {names}", file=sys.stderr, flush=True)
        _download(missing, arch, store / arch)
    return [next(folder.glob("*.whl")) for folder in folders]


def _download(requirements: list[Requirement], arch: str, store: Path) -> None:
    store.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=store, prefix=".download-") as name:
        scratch = Path(name)
        pinned = scratch / "pinned.txt"
        pinned.write_text("".join(f"{one.line()}\n" for one in requirements))
        tags = [word for tag in platforms(arch) for word in ("--platform", tag)]
        run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
                *("--disable-pip-version-check", "--require-hashes", "--only-binary=:all:"),
                *("--implementation", "cp", "--python-version", PYTHON, *tags),
                *("--dest", scratch, "-r", pinned),
            ],
            purpose=f"fetch Python packages for {arch}",
        )
        delivered = {wheel_name(path): path for path in scratch.glob("*.whl")}
        for one in requirements:
            if one.name not in delivered:
                message = f"pip delivered no wheel of {one.name} {one.version} for {arch}"
                raise WheelError(message)
            folder = store / f"{one.name}-{one.version}"
            folder.mkdir(exist_ok=True)
            delivered[one.name].replace(folder / delivered[one.name].name)


def wheel_name(path: Path) -> str:
    """Return the normalized package name in the file name of a wheel."""
    return normalized(path.name.partition("-")[0])

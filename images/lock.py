"""The pinned Debian packages, and what to do when the archive no longer has one.

Debian keeps only the newest version of a package in a suite. A pin that is gone is therefore no
failure: the section is resolved anew, the difference is printed, and the result is remembered in
the cache so that later builds from the same lock agree with this one.
"""

import hashlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from ci.command import CommandError
from ci.debian import DebianError

_HEADER = """\
# Debian packages of the images' base and of the tools that make it: version and SHA-256.
# Written by `python -m images lock`.
"""
_LINE = re.compile(
    r"^(?P<name>[a-z0-9][a-z0-9+.-]*) (?P<version>\S+) sha256:(?P<sha256>[0-9a-f]{64})$"
)


class LockError(ValueError):
    """The lock cannot be read, or a package differs from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One package: Debian version and SHA-256 (hex) of its file."""

    version: str
    sha256: str


#: Pins by package name.
Pins: TypeAlias = Mapping[str, Pin]

#: Pins by section, for example ``base arm64``.
Lock: TypeAlias = Mapping[str, Pins]


class Packages(Protocol):
    """Where packages come from: ``ci.debian.Archive``."""

    def update(self, *, max_age_seconds: float = 0.0) -> None:
        """Renew the package lists."""

    def fetch(self, packages: Sequence[str]) -> dict[str, Path]:
        """Return package files by name; a package may be pinned as ``name=version``."""


def parse(text: str, *, source: str) -> dict[str, dict[str, Pin]]:
    """Read a lock; ``source`` names it in errors."""
    lock: dict[str, dict[str, Pin]] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
            lock[section] = {}
        elif section and (match := _LINE.match(line)):
            lock[section][match["name"]] = Pin(version=match["version"], sha256=match["sha256"])
        else:
            message = f"{source}:{number}: expected `name version sha256:…`, got {line!r}"
            raise LockError(message)
    return lock


def render(lock: Lock) -> str:
    """Write a lock; ``parse`` reads it back."""
    sections = [
        f"\n[{section}]\n"
        + "".join(
            f"{name} {pin.version} sha256:{pin.sha256}\n" for name, pin in sorted(pins.items())
        )
        for section, pins in sorted(lock.items())
    ]
    return _HEADER + "".join(sections)


def difference(section: str, old: Pins, new: Pins) -> list[str]:
    """Return one readable line for each package that changed."""
    lines = []
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if before != after:
            versions = (pin.version if pin else "absent" for pin in (before, after))
            lines.append(f"{section}: {name}: {' -> '.join(versions)}")
    return lines


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def resolve(names: Sequence[str], packages: Packages) -> dict[str, Pin]:
    """Pin the newest versions of ``names``."""
    return {
        name: Pin(version=version_of(path), sha256=sha256_of(path))
        for name, path in packages.fetch(list(names)).items()
    }


def version_of(path: Path) -> str:
    """Return the version in the name of a package file."""
    return path.name.split("_")[1].replace("%3a", ":")


class Pinned:
    """The lock in ``path`` as it can be had today; deviations live in ``memory``."""

    def __init__(
        self,
        path: Path,
        memory: Path,
        *,
        packages: Callable[[str], Packages],
        report: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
    ) -> None:
        text = path.read_text()
        self._committed = parse(text, source=str(path))
        tag = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._memory = memory / f"resolved-{tag}.lock"
        self._packages = packages
        self._report = report
        self._deviating = self._remembered()

    def _remembered(self) -> dict[str, dict[str, Pin]]:
        if not self._memory.is_file():
            return {}
        return parse(self._memory.read_text(), source=str(self._memory))

    def pins(self, section: str) -> Pins:
        """Return the pins of ``section`` in force on this machine."""
        return self._deviating.get(section) or self._committed[section]

    def deviation(self, section: str) -> list[str]:
        """Return how the pins in force differ from the committed lock."""
        return difference(section, self._committed[section], self.pins(section))

    def fetch(self, section: str) -> dict[str, Path]:
        """Return the package files of ``section``, resolved anew where a pin is gone.

        Raises ``LockError`` when a package has the pinned version and another content.
        """
        source = self._packages(section)
        pins = self.pins(section)
        try:
            paths = source.fetch([f"{name}={pin.version}" for name, pin in pins.items()])
        except (CommandError, DebianError) as gone:
            self._report(f"{section}: a pinned package is gone, resolving anew ({gone})")
            source.update()
            self._deviating[section] = resolve(list(pins), source)
            for line in self.deviation(section):
                self._report(line)
            self._memory.parent.mkdir(parents=True, exist_ok=True)
            self._memory.write_text(render(self._deviating))
            pins = self.pins(section)
            paths = source.fetch([f"{name}={pin.version}" for name, pin in pins.items()])
        for name, path in paths.items():
            if sha256_of(path) != pins[name].sha256:
                message = f"{path}: not the file that the lock pins as {name} {pins[name].version}"
                raise LockError(message)
        return paths

"""Signed Debian packages of any suite and architecture, without touching the host's apt state.

apt itself resolves, downloads and verifies (signature of the suite, SHA-256 of each package);
it is only told to keep its lists, caches and sources below the project's cache directory.
Nothing is ever installed: ``unpack`` lays the files of a package below a folder.
"""

import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from ci import sources
from ci.command import CommandError, run
from ci.lock import exclusive

_UPDATED = "updated"
_VERSION = re.compile(r"^  Candidate: (?P<version>\S+)$")


class DebianError(RuntimeError):
    """A package or a suite is not to be had."""


class Archive:
    """The packages of one Debian suite for one architecture.

    ``cache`` is the project's cache directory; everything is kept below ``cache/debian``.
    """

    def __init__(self, suite: str, arch: str, cache: Path) -> None:
        self.suite = suite
        self.arch = arch
        self._home = cache / "debian" / f"{suite}-{arch}"
        self._store = cache / "debian" / "packages"
        self._config = self._home / "apt.conf"

    def update(self, *, max_age_seconds: float = 0.0) -> None:
        """Fetch the package lists unless the last fetch is younger than ``max_age_seconds``."""
        with self._locked():
            self._update(max_age_seconds)

    def candidates(self, names: Iterable[str]) -> dict[str, str]:
        """Return the version apt would take now for each name, epochs included."""
        with self._locked():
            self._update(float("inf"))
            return self._candidates(list(names))

    def fetch(self, packages: Iterable[str]) -> dict[str, Path]:
        """Return the package file for each ``name`` or ``name=version``, by name.

        Files are kept by name, version and architecture and downloaded once; a pinned version
        that is at hand needs no network. Raises ``DebianError`` naming what is missing.
        """
        wanted = dict(_split(package) for package in packages)
        with self._locked():
            unpinned = [name for name, version in wanted.items() if version is None]
            if unpinned:
                self._update(float("inf"))
            versions = self._candidates(unpinned)
            versions |= {name: version for name, version in wanted.items() if version is not None}
            found = {name: self._stored(name, versions[name]) for name in wanted}
            missing = [f"{name}={versions[name]}" for name, path in found.items() if path is None]
            if missing:
                self._download(missing)
            paths = {name: self._stored(name, versions[name]) for name in wanted}
        lost = [f"{name}={versions[name]}" for name, path in paths.items() if path is None]
        if lost:
            message = f"apt did not deliver {', '.join(lost)} ({self.suite}, {self.arch})"
            raise DebianError(message)
        return {name: path for name, path in paths.items() if path is not None}

    def _locked(self) -> AbstractContextManager[None]:
        return exclusive(
            self._home.parent / "lock",
            reason="it is using the Debian package cache",
        )

    def _update(self, max_age_seconds: float) -> None:
        stamp = self._home / _UPDATED
        self._prepare()
        if stamp.exists() and time.time() - stamp.stat().st_mtime < max_age_seconds:
            return
        run(
            ["apt-get", "-c", self._config, "-q", "update", "--error-on=any"],
            purpose=f"fetch the package lists of Debian {self.suite} ({self.arch})",
        )
        stamp.touch()

    def _prepare(self) -> None:
        for folder in ("lists/partial", "cache/archives/partial"):
            (self._home / folder).mkdir(parents=True, exist_ok=True)
        self._store.mkdir(parents=True, exist_ok=True)
        (self._home / "status").touch()
        derived = sources.render(
            sources.for_suite(sources.host_entries(), self.suite, sources.host_keyring())
        )
        listing = self._home / "debian.sources"
        if not listing.exists() or listing.read_text() != derived:
            listing.write_text(derived)
            (self._home / _UPDATED).unlink(missing_ok=True)
        self._config.write_text(apt_configuration(self._home, listing, self.arch))

    def _candidates(self, names: Sequence[str]) -> dict[str, str]:
        if not names:
            return {}
        text = run(
            ["apt-cache", "-c", self._config, "policy", *names],
            purpose=f"look up versions in Debian {self.suite} ({self.arch})",
        )
        versions = parse_policy(text)
        absent = [name for name in names if name not in versions]
        if absent:
            message = f"no such package in Debian {self.suite} ({self.arch}): {', '.join(absent)}"
            raise DebianError(message)
        return {name: versions[name] for name in names}

    def _stored(self, name: str, version: str) -> Path | None:
        for arch in (self.arch, "all"):
            path = self._store / file_name(name, version, arch)
            if path.is_file():
                return path
        return None

    def _download(self, packages: Sequence[str]) -> None:
        purpose = f"download from Debian {self.suite} ({self.arch})"
        command: list[str | Path] = ["apt-get", "-c", self._config, "-q", "download", *packages]
        self._update(float("inf"))
        with tempfile.TemporaryDirectory(dir=self._store, prefix=".download-") as name:
            folder = Path(name)
            try:
                run(command, purpose=purpose, cwd=folder)
            except CommandError:
                # Lists older than the archive name versions that are gone from it.
                self._update(0.0)
                run(command, purpose=purpose, cwd=folder)
            for path in folder.glob("*.deb"):
                path.replace(self._store / path.name)


def apt_configuration(home: Path, listing: Path, arch: str) -> str:
    """Return the configuration that keeps apt inside ``home``.

    It is given by ``-c``, thus read after the host's own files (apt.conf(5)): proxies and
    credentials stay in force, pins and hooks of the host do not.
    """
    settings = {
        "Dir::Etc::sourcelist": str(listing),
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::State": str(home),
        "Dir::State::lists": str(home / "lists"),
        "Dir::State::status": str(home / "status"),
        "Dir::State::extended_states": str(home / "extended_states"),
        "Dir::Cache": str(home / "cache"),
        "Dir::Cache::archives": str(home / "cache" / "archives"),
        "APT::Architecture": arch,
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
    }
    cleared = (
        "APT::Architectures",
        "APT::Update::Pre-Invoke",
        "APT::Update::Post-Invoke",
        "APT::Update::Post-Invoke-Success",
    )
    return "".join(
        [
            *(f"#clear {name};\n" for name in cleared),
            *(f'{name} "{value}";\n' for name, value in settings.items()),
            f'APT::Architectures {{ "{arch}"; }};\n',
        ]
    )


def parse_policy(text: str) -> dict[str, str]:
    """Read package names and candidate versions from the output of ``apt-cache policy``."""
    versions: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line and not line.startswith(" "):
            name = line.rstrip(":").partition(":")[0]
        elif (match := _VERSION.match(line)) and match["version"] != "(none)":
            versions[name] = match["version"]
    return versions


def file_name(name: str, version: str, arch: str) -> str:
    """Return the name apt gives a downloaded package: the colon of an epoch is escaped."""
    return f"{name}_{version.replace(':', '%3a')}_{arch}.deb"


def _split(package: str) -> tuple[str, str | None]:
    name, equals, version = package.partition("=")
    return name, version if equals else None


def unpack(deb: Path, target: Path) -> None:
    """Lay the files of ``deb`` below ``target``, which is created.

    Give each root file system a folder of its own: on a tree whose ``/lib`` is a link,
    ``dpkg-deb -x`` replaces the link by a folder.
    """
    target.mkdir(parents=True, exist_ok=True)
    run(["dpkg-deb", "-x", deb, target], purpose=f"unpack {deb.name}")


def unpack_atomically(debs: Iterable[Path], target: Path) -> None:
    """Make ``target`` hold the files of all ``debs``, or not exist at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as name:
        built = Path(name) / "tree"
        for deb in debs:
            unpack(deb, built)
        if target.exists():
            shutil.rmtree(target)
        built.rename(target)


def host_architecture() -> str:
    """Return dpkg's name of this machine's architecture."""
    return run(["dpkg", "--print-architecture"], purpose="ask dpkg for the architecture").strip()

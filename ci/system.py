"""Packages of the system that development and the embedded cluster need: named here, once.

Only packages that start no service are named. They are installed when missing, by the
machine's own apt, and stay: a tool such as ``ip`` is not taken away again.
"""

import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ci.cache import cache_dir
from ci.command import run
from ci.lock import exclusive

_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"


class SystemPackageError(RuntimeError):
    """A needed package is missing and cannot be installed by this user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Something a package brings: a command on the PATH or a shared library."""

    package: str
    command: str | None = None
    library: str | None = None

    def is_met(self) -> bool:
        """Tell whether the machine has it."""
        if self.command is not None:
            return which(self.command) is not None
        return any(
            next(folder.glob(f"**/{self.library}"), None) is not None
            for folder in (Path("/usr/lib"), Path("/lib"))
        )


#: What the embedded cluster runs on a bare Debian 12.
CLUSTER = (
    Need(package="iproute2", command="ip"),
    Need(package="iptables", command="iptables"),
    Need(package="procps", command="sysctl"),
    Need(package="libseccomp2", library="libseccomp.so.2"),
)
#: What loads a kernel module, on machines whose kernel does not have it built in.
MODULES = (Need(package="kmod", command="modprobe"),)


def which(command: str) -> str | None:
    """Find a command, also where only root's PATH looks."""
    return shutil.which(command, path=f"{os.environ.get('PATH', '')}:{_SBIN}")


def ensure(needs: Iterable[Need], *, purpose: str) -> None:
    """Install the packages of the needs that are not met, saying so.

    ``purpose`` completes "needed by …". Raises ``SystemPackageError`` without root.
    """
    missing = sorted({need.package for need in needs if not need.is_met()})
    if not missing:
        return
    names = " ".join(missing)
    if os.geteuid() != 0:
        message = f"{purpose} needs these packages, as root: apt-get install {names}"
        raise SystemPackageError(message)
    with exclusive(cache_dir() / "apt.lock", reason="it is installing packages"):
        print(f"installing {names} (needed by {purpose})", file=sys.stderr, flush=True)
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        run(["apt-get", "-q", "update"], purpose="update the package lists", env=environment)
        run(
            ["apt-get", "-q", "-y", "install", "--no-install-recommends", *missing],
            purpose=f"install {names}",
            env=environment,
        )

"""A current containerd, built from its Go module.

Debian 12 ships 1.6, which knows nothing of CDI (Container Device Interface). What needs CDI,
such as dynamic resource allocation, runs on this one; Debian's runc serves both.
"""

import re
from pathlib import Path

from ci import gobuild
from ci.gobuild import Recipe

DEFAULT_VERSION = "2.4.2"
_MODULE = "github.com/containerd/containerd/v2"
_COMMANDS = ("containerd", "containerd-shim-runc-v2", "ctr")
_VERSION = re.compile(r"^2\.\d+\.\d+$")


class VersionError(ValueError):
    """Not a version of containerd that can be built this way."""


def build(version: str, cache: Path) -> Path:
    """Return the folder with containerd 2.X.Y, built on first use."""
    if not _VERSION.match(version):
        message = f"{version!r} is not a containerd version of the form 2.X.Y"
        raise VersionError(message)
    return gobuild.build(lambda: recipe(version), name="containerd", version=version, cache=cache)


def recipe(version: str) -> Recipe:
    """Return how to build containerd ``version``."""
    return Recipe(
        name="containerd",
        version=version,
        go_mod=gobuild.requiring(_MODULE, version, name="containerd"),
        packages=tuple(f"{_MODULE}/cmd/{command}" for command in _COMMANDS),
        ldflags=f"-s -w -X {_MODULE}/version.Version={version}",
    )

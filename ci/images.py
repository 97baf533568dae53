"""Builds the platform's images for this machine and brings them onto an embedded cluster."""

import platform
import subprocess
import sys
from pathlib import Path

from ci.cache import cache_dir
from ci.cluster import Cluster
from ci.command import CommandError

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def architecture() -> str:
    """Return this machine's architecture as images name it."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def build_images(arch: str | None = None) -> list[Path]:
    """Build all images, printing progress, and return the archives."""
    wanted = arch or architecture()
    done = subprocess.run(
        [sys.executable, "-m", "images", "build", "--arch", wanted],
        check=False,
        cwd=Path(__file__).resolve().parents[1],
    )
    if done.returncode != 0:
        raise CommandError(f"the images for {wanted} could not be built, see above")
    return sorted((cache_dir() / "images" / wanted).glob("*.tar"))


def load_images(cluster: Cluster) -> list[str]:
    """Build the images and import them on all nodes; return their names."""
    return cluster.load_images(build_images())

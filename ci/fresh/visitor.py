"""The second disk: what the visitor brings along.

This checkout's committed state as a Git repository, what would take hours to build in an emulated
machine, and how registries are reached from here.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ci import kubernetes
from ci.cluster import pause
from ci.command import CommandError, run
from ci.fresh import client, image, machine

CHECKOUT: Final = Path(__file__).resolve().parents[2]
_SCRIPT: Final = Path(__file__).with_name("visit.sh")
_SIZE: Final = "8G"


def make(work: Path, cache: Path, environment: Mapping[str, str], *, patience: float) -> Path:
    """Write the disk below ``work`` and return its path.

    What is missing of the built programs and images is built first, here. Raises
    ``ci.command.CommandError`` and the errors of those builds.
    """
    folder = work / "visitor"
    folder.mkdir()
    repository = folder / "npu-platform.git"
    run(
        ["git", "clone", "--quiet", "--bare", "--no-hardlinks", CHECKOUT, repository],
        purpose="copy the repository",
    )
    _build(work / "checkout", repository, cache)
    for path in handed_in(cache):
        _share(path, folder / "cache" / path.relative_to(cache))
    client.write(folder / "client", environment)
    shutil.copyfile(_SCRIPT, folder / "visit.sh")
    (folder / "environment.sh").write_text(client.script({"NPU_PATIENCE": f"{patience:g}"}))
    disk = work / "visitor.ext4"
    image.make_disk(folder, disk, label=machine.VISITOR_LABEL, size=_SIZE)
    return disk


def handed_in(cache: Path) -> list[Path]:
    """Return the folders and files of the cache that the guest need not make."""
    return [
        cache / "kubernetes" / kubernetes.DEFAULT_VERSION,
        pause.archive(cache).parent,
        cache / "images" / "layers",
        *sorted((cache / "images").glob("resolved-*.lock")),
    ]


def _build(checkout: Path, repository: Path, cache: Path) -> None:
    """Build what the committed state needs, which may differ from the files lying here."""
    run(["git", "clone", "--quiet", repository, checkout], purpose="check out the committed state")
    kubernetes.build(kubernetes.DEFAULT_VERSION, cache)
    done = subprocess.run(
        [sys.executable, "-m", "images", "build", "--arch", "amd64", "--out", checkout / "dist"],
        cwd=checkout,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        raise CommandError("the images of the committed state could not be built, see above")


def _share(source: Path, target: Path) -> None:
    """Copy a file or a tree by links, so that it takes no room."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=os.link, symlinks=True)
    else:
        os.link(source, target)

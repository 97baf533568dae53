"""Writes a board's tree into a directory: the only place of this package that writes.

Every file appears under its name complete (written beside it, then renamed), as readers of a real
board never see half a value either.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from npu.host import Host
from npu.layout import DeviceNumber, Tree

#: What simulated nodes are by default: a misc device outside every container's default device
#: rules, so that a container can open it exactly when it was granted.
SIMULATED_DEVICE: DeviceNumber = (10, 229)

_NODE_MODE = 0o660
# A link in the place of the file beside belongs to the board, and leads who knows where.
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


def materialise(tree: Tree, directory: Path, *, device_nodes: bool) -> None:
    """Write ``tree`` below ``directory``, over what is there, and never outside of it.

    ``device_nodes`` makes real character devices, which needs CAP_MKNOD; otherwise they are empty
    files. Raises OSError, and ReadError where links of the tree lead in a circle.
    """
    for path, content in tree.files.items():
        write_file(_new_place(directory, path), content)
    for path, target in tree.links.items():
        place_link(_new_place(directory, path), target)
    for path, number in tree.nodes.items():
        _node(_new_place(directory, path), number if device_nodes else None)


def update(directory: Path, files: Mapping[str, bytes]) -> None:
    """Replace files of a tree; a path whose directory is missing raises FileNotFoundError."""
    for path, content in files.items():
        write_file(_place(directory, path), content)


def write_file(path: Path, content: bytes) -> None:
    """Write a file so that it is seen either as it was or complete.

    A full disk may take a part only: that changes nothing and raises OSError, which names ``path``.
    """
    beside = path.with_name(f".{path.name}.new")
    try:
        with os.fdopen(os.open(beside, _WRITE, 0o644), "wb") as file:
            file.write(content)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        # A failed write, unlike a failed open, does not say of which file.
        error.filename = os.fspath(path)
        raise


def place_link(path: Path, target: str) -> None:
    """Make or replace a symbolic link in one step."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    beside.replace(path)


def _place(directory: Path, path: str) -> Path:
    """Return where a path of the board is, links on the way followed as the board would.

    A board comes from whoever sent it: the system would follow its link ``/dev`` to this machine's
    ``/etc``.
    """
    folder, _, name = path.rpartition("/")
    return directory / Host(directory).real_path(folder).lstrip("/") / name


def _new_place(directory: Path, path: str) -> Path:
    place = _place(directory, path)
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _node(path: Path, number: DeviceNumber | None) -> None:
    path.unlink(missing_ok=True)
    if number is None:
        write_file(path, b"")
        return
    os.mknod(path, stat.S_IFCHR | _NODE_MODE, os.makedev(*number))
    path.chmod(_NODE_MODE)

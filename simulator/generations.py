"""A board's tree in a directory that others have mounted, replaced as a whole.

The directory itself is the mount point of other containers, so it cannot be exchanged. Each tree is
written into a folder of its own; ``.current`` leads to the one in force and ``sys``, ``dev`` and
the others lead through it. Turning ``.current`` changes all of them in one step: no reader sees
parts of two boards under one path.
"""

import errno
import hashlib
import logging
import shutil
from pathlib import Path

from daemon.logs import fields
from npu.errors import BoardError
from npu.layout import Tree
from npu.names import SIMULATED_MARKER
from npu.tree import materialise, place_link

log = logging.getLogger(__name__)

_CURRENT = ".current"
_TREES = ".trees"
_NOT_PERMITTED = frozenset({errno.EPERM, errno.EACCES})


class Generations:
    """Installs and removes trees in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        #: Whether the nodes of the tree in force are character devices.
        self.device_nodes = False

    @property
    def tree(self) -> Path:
        """Where the files of the tree in force are."""
        return self._directory / _CURRENT

    def install(self, name: str, tree: Tree, *, device_nodes: bool) -> bool:
        """Put ``tree`` in force; return False where it already was, its files left as they are.

        Without the capability to make device nodes their places are empty files, which is logged.
        Raises OSError, or BoardError where the directory holds files that are not the simulator's.
        """
        generation = f"{name}-{_digest(tree, device_nodes=device_nodes)}"
        if self._generation() == generation and (self.tree / SIMULATED_MARKER[1:]).exists():
            self.device_nodes = any(map(_is_device, (self.tree / "dev").rglob("*")))
            return False
        entries = {path.split("/")[1] for path in (*tree.files, *tree.links, *tree.nodes)}
        for entry in sorted(entries):
            if (place := self._directory / entry).exists() and not place.is_symlink():
                raise BoardError(f"{place} is not the simulator's, so nothing is written here")
        target = self._directory / _TREES / generation
        self._write(tree, target, device_nodes=device_nodes)
        place_link(self.tree, f"{_TREES}/{generation}")
        for entry in entries:
            place_link(self._directory / entry, f"{_CURRENT}/{entry}")
        self._sweep(entries, generation)
        return True

    def remove(self) -> bool:
        """Remove what :meth:`install` made; return False where there was nothing."""
        if self._generation() is None and not (self._directory / _TREES).exists():
            return False
        # With this link the whole board vanishes at once; the rest only frees the space.
        self.tree.unlink(missing_ok=True)
        self._sweep(set(), None)
        shutil.rmtree(self._directory / _TREES, ignore_errors=True)
        return True

    def _write(self, tree: Tree, target: Path, *, device_nodes: bool) -> None:
        shutil.rmtree(target, ignore_errors=True)
        if device_nodes:
            try:
                materialise(tree, target, device_nodes=True)
            except OSError as error:
                if error.errno not in _NOT_PERMITTED:
                    raise
                log.warning(
                    "empty files in place of device nodes: the capability MKNOD is missing",
                    extra=fields(error=error),
                )
            else:
                self.device_nodes = True
                return
        self.device_nodes = False
        materialise(tree, target, device_nodes=False)

    def _generation(self) -> str | None:
        try:
            return self.tree.readlink().name
        except OSError:
            return None

    def _sweep(self, entries: set[str], generation: str | None) -> None:
        """Remove links and trees that are not in force."""
        for path in self._directory.iterdir():
            if (
                path.is_symlink()
                and path.name not in {*entries, _CURRENT}
                and str(path.readlink()).startswith(f"{_CURRENT}/")
            ):
                path.unlink()
        trees = self._directory / _TREES
        for path in trees.iterdir() if trees.exists() else ():
            if path.name != generation:
                shutil.rmtree(path, ignore_errors=True)


def _digest(tree: Tree, *, device_nodes: bool) -> str:
    content = repr((sorted(tree.files.items()), sorted(tree.links.items()), device_nodes))
    numbers = repr(sorted(tree.nodes.items()))
    return hashlib.sha256((content + numbers).encode()).hexdigest()[:12]


def _is_device(path: Path) -> bool:
    return path.is_char_device()

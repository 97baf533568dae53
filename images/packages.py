"""Read Debian packages and wheels into trees."""

import io
import posixpath
import subprocess
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

from ci.command import run
from images.tree import File, Folder, Link, Tree, TreeError

_SHARED_FOLDER = 0o1777

#: Where Debian's Python looks for modules that are not Debian's, also with ``-I`` (site.py).
MODULES = "usr/local/lib/python3.13/dist-packages"


def debian_tree(deb: Path) -> Tree:
    """Return the files of a Debian package; no script of it is run."""
    done = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout), mode="r:") as archive:
        return _tar_tree(archive, deb.name)


def _tar_tree(archive: tarfile.TarFile, source: str) -> Tree:
    tree: Tree = {}
    for entry in archive:
        path = posixpath.normpath(entry.name).lstrip("/")
        if path == ".":
            continue
        if entry.isdir():
            tree[path] = Folder(shared=entry.mode & _SHARED_FOLDER == _SHARED_FOLDER)
        elif entry.issym():
            tree[path] = Link(entry.linkname)
        elif entry.islnk():
            tree[path] = tree[posixpath.normpath(entry.linkname)]
        elif entry.isreg():
            content = archive.extractfile(entry)
            tree[path] = File(content.read() if content else b"", bool(entry.mode & 0o100))
        else:
            message = f"{source}: /{path} is neither file, link nor folder"
            raise TreeError(message)
    return tree


def placed(tree: Tree) -> Tree:
    """Move modules to where the image's Python finds them."""
    return {f"{MODULES}/{path}": node for path, node in tree.items()}


def debian_control(deb: Path) -> str:
    """Return the control data of a package, as scanners expect it below ``status.d``."""
    return run(["dpkg-deb", "--field", deb], purpose=f"read the control data of {deb.name}")


def wheel_tree(wheel: Path) -> Tree:
    """Return the files of a wheel relative to a folder of modules.

    Scripts are left out: the images have no shell to run them, and no PATH worth the name.
    """
    tree: Tree = {}
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if entry.is_dir():
                continue
            words = PurePosixPath(entry.filename).parts
            if words[0].endswith(".data"):
                if words[1] == "scripts":
                    continue
                if words[1] not in ("purelib", "platlib"):
                    message = f"{wheel.name}: no place in an image for {entry.filename}"
                    raise TreeError(message)
                words = words[2:]
            tree["/".join(words)] = File(archive.read(entry))
    return tree

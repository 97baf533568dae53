"""Write a tree as a layer whose bytes depend on the tree alone.

Paths are sorted, times, owners and owner names are zero, modes come from the kind of node. The
uncompressed digest (diff ID) is what two builds must share; the compressed one also depends on
the zlib at hand.
"""

import gzip
import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from images.tree import File, Folder, Link, Node, Tree, with_parents

_COMPRESSION_LEVEL = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A compressed layer in the cache. Digests are ``sha256:<hex>``, sizes are bytes."""

    name: str
    digest: str
    diff_id: str
    compressed_bytes: int
    unpacked_bytes: int
    path: Path


def write_tar(tree: Mapping[str, Node], target: BinaryIO) -> None:
    """Write ``tree`` and the folders above its nodes to ``target`` as one tar file."""
    whole = with_parents(tree)
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(whole):
            node = whole[path]
            entry = header(path, node)
            archive.addfile(entry, io.BytesIO(node.data) if isinstance(node, File) else None)


def header(path: str, node: Node) -> tarfile.TarInfo:
    """Return the tar header of a node; everything that is not content is fixed."""
    entry = tarfile.TarInfo(path)
    entry.mtime = 0
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    match node:
        case File():
            entry.type, entry.size = tarfile.REGTYPE, len(node.data)
            entry.mode = 0o755 if node.executable else 0o644
        case Link():
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, node.target, 0o777
        case Folder():
            entry.type = tarfile.DIRTYPE
            entry.mode = 0o1777 if node.shared else 0o755
    return entry


def write_layer(name: str, tree: Mapping[str, Node], path: Path) -> Layer:
    """Write ``tree`` compressed to ``path`` and return what is known about it."""
    plain = io.BytesIO()
    write_tar(tree, plain)
    packed = compressed(plain.getvalue())
    path.write_bytes(packed)
    return Layer(
        name=name,
        digest=digest_of(packed),
        diff_id=digest_of(plain.getvalue()),
        compressed_bytes=len(packed),
        unpacked_bytes=sum(len(node.data) for node in tree.values() if isinstance(node, File)),
        path=path,
    )


def compressed(data: bytes) -> bytes:
    """Return ``data`` in gzip form; the header names neither file nor time (RFC 1952)."""
    packed = io.BytesIO()
    with gzip.GzipFile(
        filename="", mode="wb", compresslevel=_COMPRESSION_LEVEL, fileobj=packed, mtime=0
    ) as stream:
        stream.write(data)
    return packed.getvalue()


def digest_of(data: bytes) -> str:
    """Return the digest of a blob."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Store:
    """Finished layers by the key of what they were made from, below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def provide(self, name: str, key: str, make: Callable[[], Tree]) -> Layer:
        """Return the layer of ``key``; only where it is not at hand call ``make`` for its tree."""
        known = self._folder / f"{key}.json"
        blob = self._folder / f"{key}.tar.gz"
        if known.is_file() and blob.is_file():
            return Layer(**json.loads(known.read_text()), path=blob)
        tree = make()
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=".layer-") as scratch:
            written = write_layer(name, tree, Path(scratch) / "layer")
            written.path.replace(blob)
            record = {field: value for field, value in asdict(written).items() if field != "path"}
            note = Path(scratch) / "record"
            note.write_text(json.dumps(record, sort_keys=True))
            note.replace(known)
        return Layer(**record, path=blob)


def key_of(*parts: object) -> str:
    """Return a name for everything in ``parts``; they must be JSON values."""
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]

"""The tools of the build, from the same signed archive as the base: Python 3.13 and strip.

They are unpacked below the cache and started through their own loader, so that neither root nor
a matching C library on the host is needed. Both work for any architecture of the images:
bytecode has none, and binutils exist per target.
"""

import io
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from ci.command import run
from ci.debian import unpack_atomically
from images.tree import File, Link, Node, Tree

#: GNU names of the architectures.
TRIPLETS = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
_LOADERS = {"amd64": "ld-linux-x86-64.so.2", "arm64": "ld-linux-aarch64.so.1"}

#: Packages of the interpreter and of strip for both targets.
PACKAGES = (
    *("binutils-aarch64-linux-gnu", "binutils-x86-64-linux-gnu", "libbinutils", "libbz2-1.0"),
    *("libc6", "libexpat1", "libffi8", "libgcc-s1", "liblzma5", "libpython3.13-minimal"),
    *("libpython3.13-stdlib", "libsframe1", "libssl3t64", "libzstd1", "python3.13-minimal"),
    "zlib1g",
)

_SYMBOL_TABLE = 2  # SHT_SYMTAB, elf(5)
_COMPILER = Path(__file__).with_name("compile_sources.py")
# Stripping gains nothing on libraries that come stripped, and costs a process each.
_WORTH_STRIPPING_BYTES = 4096


class Toolchain:
    """Python 3.13 and strip below ``root``, running on ``arch`` (Debian's name)."""

    def __init__(self, root: Path, arch: str) -> None:
        self._root = root
        self._library = root / "usr" / "lib" / TRIPLETS[arch]
        self._loader = self._library / _LOADERS[arch]

    @classmethod
    def unpacked(cls, debs: Iterable[Path], root: Path, arch: str) -> "Toolchain":
        """Lay down ``debs`` at ``root`` unless they are there; the folder's name tells them."""
        if not root.is_dir():
            unpack_atomically(debs, root)
        return cls(root, arch)

    def _command(self, program: str) -> list[str | Path]:
        path = self._root / "usr" / "bin" / program
        return [self._loader, "--library-path", self._library, "--argv0", path, path]

    def compile_sources(self, tree: Mapping[str, Node], *, keep: Iterable[str] = ()) -> Tree:
        """Return ``tree`` with every Python source replaced by its bytecode.

        Sources whose path is in ``keep`` stay. Raises ``CommandError`` with the syntax error.
        """
        stay = frozenset(keep)
        sources = {
            path: node.data
            for path, node in tree.items()
            if path.endswith(".py") and path not in stay and isinstance(node, File)
        }
        rest = dict(
            _bytecode_link(path, node) for path, node in tree.items() if path not in sources
        )
        return rest | self._compiled(sources) if sources else rest

    def _compiled(self, sources: Mapping[str, bytes]) -> Tree:
        with tempfile.TemporaryDirectory(prefix="npu-platform-compile-") as name:
            given, made = Path(name) / "sources.tar", Path(name) / "bytecode.tar"
            with tarfile.open(given, "w") as archive:
                for path, data in sorted(sources.items()):
                    entry = tarfile.TarInfo(path)
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))
            # The order of constants in a set follows the hash seed; -I would ignore it.
            run(
                [*self._command("python3.13"), *("-P", "-s", "-S", "-B"), _COMPILER, given, made],
                purpose="compile Python sources",
                env={"PYTHONHASHSEED": "0"},
            )
            with tarfile.open(made) as archive:
                return {
                    entry.name: File(content.read())
                    for entry in archive
                    if (content := archive.extractfile(entry)) is not None
                }

    def strip(self, tree: Mapping[str, Node], arch: str) -> Tree:
        """Return ``tree`` with the symbols that nothing needs at run time cut off its libraries."""
        result = dict(tree)
        for path, node in tree.items():
            if isinstance(node, File) and is_library(path) and has_symbol_table(node.data):
                smaller = self._stripped(node.data, arch)
                if len(smaller) + _WORTH_STRIPPING_BYTES < len(node.data):
                    result[path] = File(smaller, node.executable)
        return result

    def _stripped(self, data: bytes, arch: str) -> bytes:
        with tempfile.TemporaryDirectory(prefix="npu-platform-strip-") as name:
            library = Path(name) / "library.so"
            library.write_bytes(data)
            run(
                [*self._command(f"{TRIPLETS[arch]}-strip"), "--strip-unneeded", library],
                purpose="strip a library",
            )
            return library.read_bytes()


def _bytecode_link(path: str, node: Node) -> tuple[str, Node]:
    if isinstance(node, Link) and path.endswith(".py") and node.target.endswith(".py"):
        return f"{path}c", Link(f"{node.target}c")
    return path, node


def is_library(path: str) -> bool:
    """Tell shared libraries by name."""
    name = path.rpartition("/")[2]
    return name.endswith(".so") or ".so." in name


def has_symbol_table(data: bytes) -> bool:
    """Tell whether a 64-bit little-endian ELF file has a symbol table."""
    if data[:6] != b"\x7fELF\x02\x01":
        return False
    offset = int.from_bytes(data[40:48], "little")
    size = int.from_bytes(data[58:60], "little")
    count = int.from_bytes(data[60:62], "little")
    starts = range(offset, offset + size * count, size or 1)
    return any(
        int.from_bytes(data[start + 4 : start + 8], "little") == _SYMBOL_TABLE for start in starts
    )

"""Vendor runtime libraries on the board: where they are, which version, and for which machine.

The version is a text inside the file; the library is never loaded here.
"""

import re
import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from npu.errors import NpuError
from npu.host import Host
from npu.model import Library

#: Where distributions and vendors put them, in the order in which a loader would find them.
SEARCH_PATHS: Final = (
    "/usr/lib",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/lib",
    "/lib",
    "/lib64",
    "/oem/usr/lib",
)
#: By driver: the vendor's runtime does not run on the mainline driver.
_NAMES: Final = {"rknpu": ("librknnrt.so", "librknnmrt.so", "librkllmrt.so")}
_THREE_NUMBERS = rb"([0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6}[0-9A-Za-z.+-]{0,32})"
_VERSION = re.compile(
    rb"librknnm?rt version: " + _THREE_NUMBERS + rb" \([0-9a-f]{1,40}@"
    rb"|rkllm-runtime version: " + _THREE_NUMBERS
)
#: Longer than any match of the pattern, so that one across two pieces is found.
_OVERLAP_BYTES = 256
_CHUNK_BYTES = 1 << 20
_LIMIT_BYTES = 64 << 20

#: Lowest driver by library and its lowest version: what RKLLM asks for in log and guide. The
#: need is a minimum: newer drivers serve older libraries.
_NEEDED_DRIVERS: Final = (
    ("librkllmrt.so", (1, 2, 0), (0, 9, 8)),
    ("librkllmrt.so", (1, 1, 0), (0, 9, 7)),
)
_NUMBERS = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)")

_NARROW_MODELS = frozenset({"rv1103", "rv1106"})
_ELF_MAGIC = b"\x7fELF"
_ELF_64_BIT = 2
_ELF_LITTLE_ENDIAN = 1
_ELF_SHARED = 3
_ELF_AARCH64 = 183
_ELF_ARM = 40
ELF_HEADER_BYTES: Final = 20


def find(host: Host, driver: str, extra_paths: Iterable[str] = ()) -> tuple[Library, ...]:
    """Return the libraries for a driver, each name once, ``extra_paths`` before the usual ones."""
    directories = (*extra_paths, *SEARCH_PATHS)
    found: list[Library] = []
    for name in _NAMES.get(driver, ()):
        for directory in directories:
            path = f"{directory.rstrip('/')}/{name}"
            identity = host.file_identity(path)
            if identity is not None:
                version = _version(host, path, identity)
                found.append(Library(name=name, path=path, version=version))
                break
    return tuple(found)


def version_in(chunks: Iterable[bytes]) -> str | None:
    """Return the version that a library carries as text, None where there is none."""
    tail = b""
    for chunk in chunks:
        window = tail + chunk
        match = _VERSION.search(window)
        if match is not None:
            return (match[1] or match[2]).decode("ascii")
        tail = window[-_OVERLAP_BYTES:]
    return None


def numbers(version: str | None) -> tuple[int, ...] | None:
    """Return the three numbers a version begins with, None where it has none."""
    match = None if version is None else _NUMBERS.match(version)
    return None if match is None else tuple(int(group) for group in match.groups())


def driver_too_old(library: Library, driver_version: str | None) -> str | None:
    """Return the driver version that ``library`` asks for where this board's is older, else None.

    None also where nothing is known: most libraries name no minimum.
    """
    version, have = numbers(library.version), numbers(driver_version)
    if version is None or have is None:
        return None
    for name, lowest, needed in _NEEDED_DRIVERS:
        if library.name == name and version >= lowest:
            return ".".join(map(str, needed)) if have < needed else None
    return None


def machine_bits(model: str | None) -> int:
    """Return the word size of the processor beside an NPU of this model."""
    return 32 if model in _NARROW_MODELS else 64


def elf_problem(header: bytes, *, machine_bits: int = 64) -> str | None:
    """Return what is wrong with the first bytes of a shared library, None if a board can load it.

    Boards with ``machine_bits`` 32 are the small RV110x; all others are aarch64.
    """
    if len(header) < ELF_HEADER_BYTES:
        return f"only {len(header)} bytes long"
    if not header.startswith(_ELF_MAGIC):
        return "not an ELF file"
    kind, machine = struct.unpack_from("<HH", header, 16)
    wide = machine_bits == 64  # noqa: PLR2004 (a word size is its own name)
    if header[5] != _ELF_LITTLE_ENDIAN or (header[4] == _ELF_64_BIT) != wide:
        return f"not for a {machine_bits}-bit little-endian machine"
    if machine != (_ELF_AARCH64 if wide else _ELF_ARM):
        return f"for another machine (ELF machine {machine})"
    if kind != _ELF_SHARED:
        return f"not a shared library (ELF type {kind})"
    return None


@lru_cache(maxsize=16)
def _version(
    host: Host,
    path: str,
    identity: tuple[int, int, int, int],  # noqa: ARG001 (part of the cache key)
) -> str | None:
    """Return the version in a file, which has megabytes: an unchanged file is read once."""
    try:
        return version_in(host.chunks(path, _CHUNK_BYTES, _LIMIT_BYTES))
    except NpuError:
        return None

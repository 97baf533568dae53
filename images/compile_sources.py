"""Compile a tar file of sources to a tar file of bytecode; runs in the images' own Python.

Bytecode is valid for one minor version of Python only, thus this is a program of its own. The
names of the entries are the paths of the sources in the image; they are what tracebacks show.
The header is that of PEP 552 with unchecked hashes: nothing in it changes from build to build.
"""

import importlib.util
import io
import marshal
import sys
import tarfile

_UNCHECKED_HASH = 0b01
# Without docstrings and assertions: 12 MiB less resident memory with a large API client.
_OPTIMIZE = 2


def _compiled(source: bytes, path: str) -> bytes:
    code = compile(source, path, "exec", dont_inherit=True, optimize=_OPTIMIZE)
    flags = _UNCHECKED_HASH.to_bytes(4, "little")
    stamp = importlib.util.source_hash(source)
    return importlib.util.MAGIC_NUMBER + flags + stamp + marshal.dumps(code)


def main(sources: str, target: str) -> None:
    """Read ``sources``, write ``target``; an entry ``x.py`` becomes ``x.pyc``."""
    with tarfile.open(sources) as given, tarfile.open(target, "w") as made:
        for entry in given:
            content = given.extractfile(entry)
            data = _compiled(content.read() if content else b"", f"/{entry.name}")
            result = tarfile.TarInfo(f"{entry.name}c")
            result.size = len(data)
            made.addfile(result, io.BytesIO(data))


if __name__ == "__main__":
    main(*sys.argv[1:])

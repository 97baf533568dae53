"""Files of the plugin's own that others read: complete under their name, or as they were."""

import os
from pathlib import Path


def replace_file(path: Path, data: bytes, *, mode: int, durable: bool = False) -> None:
    """Make ``path`` hold ``data``, written beside it (``.part``) and renamed. Raises OSError.

    With ``durable`` it is on disk when this returns. Of a write that fails nothing is left: on a
    full disk the part that found room would keep the next one from being written.
    """
    part = path.with_suffix(".part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    descriptor = os.open(part, flags, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        part.rename(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    if durable:
        # The rename itself is in the directory.
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

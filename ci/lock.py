"""Exclusive locks between processes, for caches and instance numbers."""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path, *, reason: str) -> Iterator[None]:
    """Hold the lock file ``path`` while the body runs.

    A second holder waits and says once what it waits for: ``reason`` is the object of
    "waiting for another process: …". The kernel drops the lock with the process, so a
    crash leaves nothing to clean up (flock(2)). The holder may delete the file.
    """
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                message = f"waiting for another process: {reason} ({path})"
                print(message, file=sys.stderr, flush=True)
                fcntl.flock(handle, fcntl.LOCK_EX)
            if _is_current(handle.fileno(), path):
                yield
                return


def _is_current(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False

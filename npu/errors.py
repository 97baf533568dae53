"""What can go wrong when a board is read.

::

    NpuError
    ├── ReadError            a file could not be read; carries path and errno
    │   ├── MissingError     it is not there (driver absent, not mounted, hot-unplugged)
    │   ├── DeniedError      not allowed (not root, lockdown, directory mode)
    │   └── TransientError   it may work next time (EAGAIN, EIO, EINVAL of a sensor, stuck read)
    ├── ImplausibleError     it was read and makes no sense: never turned into a number
    └── BoardError           a board description is wrong

A caller decides by type, never by text: "absent" and "could not measure" lead to different actions.
"""

import errno
import os

_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.ESTALE})
_DENIED = frozenset({errno.EACCES, errno.EPERM})
_QUOTED = 120


class NpuError(Exception):
    """Base of everything this package raises on purpose."""


class ReadError(NpuError):
    """A file of the board could not be read.

    ``reason`` is the short code used in metrics and JSON: ``missing``, ``denied``, ``transient``.
    """

    reason = "unreadable"

    def __init__(self, path: str, number: int, detail: str = "") -> None:
        self.path = path
        self.errno = number
        text = detail or os.strerror(number)
        super().__init__(f"{path}: {text} ({errno.errorcode.get(number, number)})")


class MissingError(ReadError):
    """The file does not exist or its device is gone."""

    reason = "missing"


class DeniedError(ReadError):
    """The process may not read the file."""

    reason = "denied"


class TransientError(ReadError):
    """The read failed in a way that says nothing about the next one."""

    reason = "transient"


class ImplausibleError(NpuError):
    """The content of a file is not what the kernel writes there.

    The offending content is quoted, cut and escaped, because it may come from a hostile tree.
    """

    reason = "implausible"

    def __init__(self, path: str, content: object, expected: str) -> None:
        self.path = path
        quoted = repr(content)[:_QUOTED]
        super().__init__(f"{path}: expected {expected}, found {quoted}")


class BoardError(NpuError):
    """A board description or a simulated board is wrong."""


def read_error(path: str, error: OSError) -> ReadError:
    """Give the typed failure for an ``OSError`` of a read or an open of ``path``."""
    number = error.errno or errno.EIO
    if number in _MISSING:
        return MissingError(path, number)
    if number in _DENIED:
        return DeniedError(path, number)
    return TransientError(path, number)

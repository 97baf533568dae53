"""Bounded, read-only access to the files of one board.

Every read of the platform goes through a :class:`Host`: one root directory serves the real
machine (``/sys``, ``/dev`` and so on mounted below ``/host``), fixture trees and simulated boards
alike. Nothing here writes, and nothing opens a device node.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from npu.errors import ImplausibleError, read_error

#: Largest file content ever taken; the longest file the drivers write is far below a page.
READ_LIMIT_BYTES = 4096
_MAX_LINKS = 40

#: Reads at most ``limit`` bytes of an absolute path; raises ``OSError``.
Reader = Callable[[str, int], bytes]


def read_bounded(path: str, limit: int) -> bytes:
    """Read at most ``limit`` bytes of ``path`` with one read, never waiting.

    ``O_NONBLOCK`` makes a FIFO or a busy sensor answer ``EAGAIN`` instead of hanging, and only the
    plain ``os.read`` reports that errno (buffered readers turn it into ``None`` or ``''``).
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, limit)
    finally:
        os.close(descriptor)


def decimal(text: str) -> int | None:
    """Return the decimal integer ``text``, None where it is none that a kernel would print."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(2**64))):
        return None
    return int(text)


class Host:
    """A board's file tree.

    ``root`` is where this process sees the board's ``/``; a relative one counts from the current
    directory. ``node_prefix`` is where kubelet and container runtime see the same tree: empty on a
    real board, ``/var/lib/npu-platform/board`` on a simulated one. ``proc`` is where the board's
    ``/proc`` is, ``<root>/proc`` when None: what drivers put there shows in every procfs of the
    machine, a container's own included, and the host's needs not be mounted. ``reader`` replaces
    the system read in tests.

    Paths given to the methods are absolute paths as the board sees them (``/sys/…``).
    """

    def __init__(
        self,
        root: str | os.PathLike[str] = "/",
        node_prefix: str = "",
        reader: Reader = read_bounded,
        *,
        proc: str | os.PathLike[str] | None = None,
    ) -> None:
        self.root = os.path.join(os.getcwd(), root).rstrip("/") if os.fspath(root) else ""
        self.node_prefix = node_prefix.rstrip("/")
        self._proc = None if proc is None else os.fspath(proc).rstrip("/")
        self._reader = reader

    def on_node(self, path: str) -> str:
        """Return what kubelet and container runtime call ``path``."""
        return f"{self.node_prefix}{path}"

    def read(self, path: str, limit: int = READ_LIMIT_BYTES) -> bytes:
        """Return the content of ``path``, at most ``limit`` bytes.

        Raises MissingError, DeniedError or TransientError.
        """
        try:
            return self._reader(self._inside(path), limit)
        except OSError as error:
            raise read_error(path, error) from error

    def read_text(self, path: str, limit: int = READ_LIMIT_BYTES) -> str:
        """Return the content of ``path`` as text.

        Raises ImplausibleError where it is empty, not UTF-8, or reaches ``limit``, because a text
        that may be cut says something else; besides what :meth:`read` raises.
        """
        content = self.read(path, limit)
        if not content:
            raise ImplausibleError(path, content, "content")
        if len(content) >= limit:
            raise ImplausibleError(path, content, f"less than {limit} bytes")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise ImplausibleError(path, content, "UTF-8 text") from error

    def read_integer(self, path: str) -> int:
        """Return the one decimal integer that ``path`` holds; the unit is the kernel's."""
        text = self.read_text(path).strip()
        value = decimal(text)
        if value is None:
            raise ImplausibleError(path, text, "a decimal integer")
        return value

    def read_natural(self, path: str) -> int:
        """Read an integer that cannot be negative, such as a counter; raises as the others do."""
        value = self.read_integer(path)
        if value < 0:
            raise ImplausibleError(path, value, "a number that is not negative")
        return value

    def names(self, path: str) -> list[str]:
        """Return the sorted entry names of a directory; a missing directory has none.

        Raises DeniedError or TransientError where the directory exists and cannot be listed.
        """
        try:
            return sorted(os.listdir(self._inside(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise read_error(path, error) from error

    def chunks(self, path: str, chunk_bytes: int, limit_bytes: int) -> Iterator[bytes]:
        """Yield the content of a regular file piece by piece, at most ``limit_bytes`` in all.

        For large ordinary files such as libraries; what is not a regular file yields nothing.
        Raises the read errors.
        """
        try:
            descriptor = os.open(self._inside(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise read_error(path, error) from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return
            left = limit_bytes
            while left > 0 and (chunk := os.read(descriptor, min(chunk_bytes, left))):
                left -= len(chunk)
                yield chunk
        except OSError as error:
            raise read_error(path, error) from error
        finally:
            os.close(descriptor)

    def file_identity(self, path: str) -> tuple[int, int, int, int] | None:
        """Return (device, inode, mtime in ns, size) of a regular file, None where it is none.

        Two equal identities mean equal content, as far as a file system tells.
        """
        try:
            status = os.stat(self._inside(path), follow_symlinks=False)
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size

    def exists(self, path: str) -> bool:
        """Tell whether ``path`` exists, links followed inside the root."""
        try:
            os.stat(self._inside(path))
        except OSError:
            return False
        return True

    def link_name(self, path: str) -> str | None:
        """Return the last component of a symbolic link's target, None where there is no link."""
        try:
            return PurePosixPath(os.readlink(self._inside(path, follow_last=False))).name
        except OSError:
            return None

    def link_target(self, path: str) -> str | None:
        """Return what a symbolic link says, None where ``path`` is no link."""
        try:
            return os.readlink(self._inside(path, follow_last=False))
        except OSError:
            return None

    def real_path(self, path: str) -> str:
        """Return ``path`` with all links resolved, as the board sees it; it need not exist.

        Raises DeniedError or TransientError where a link on the way cannot be read.
        """
        try:
            return f"/{'/'.join(self._resolved(path))}"
        except OSError as error:
            raise read_error(path, error) from error

    def device_number(self, path: str) -> tuple[int, int] | None:
        """Return (major, minor) of a character device, None where ``path`` is something else.

        Only looks at the inode: the node is never opened. Raises the read errors.
        """
        try:
            status = os.stat(self._inside(path), follow_symlinks=False)
        except OSError as error:
            raise read_error(path, error) from error
        if not stat.S_ISCHR(status.st_mode):
            return None
        return os.major(status.st_rdev), os.minor(status.st_rdev)

    def _inside(self, path: str, *, follow_last: bool = True) -> str:
        """Return where this process finds ``path``."""
        return self._place(self._resolved(path, follow_last=follow_last))

    def _place(self, parts: list[str]) -> str:
        if self._proc is not None and parts[:1] == ["proc"]:
            return "/".join([self._proc, *parts[1:]])
        return "/".join([self.root, *parts]) or "/"

    def _resolved(self, path: str, *, follow_last: bool = True) -> list[str]:
        """Resolve ``path`` below the root: an absolute link or ``..`` cannot lead out of it."""
        pending = [part for part in reversed(path.split("/")) if part not in ("", ".")]
        done: list[str] = []
        links = 0
        while pending:
            part = pending.pop()
            if part == "..":
                if done:
                    done.pop()
                continue
            if not pending and not follow_last:
                return [*done, part]
            try:
                target = os.readlink(self._place([*done, part]))
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
                    done.append(part)
                    continue
                raise
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target.startswith("/"):
                done.clear()
            pending.extend(piece for piece in reversed(target.split("/")) if piece not in ("", "."))
        return done

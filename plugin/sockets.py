"""The plugin directory of the kubelet: what is there, and what an earlier plugin left behind."""

import errno
import logging
import socket
import stat
from pathlib import Path

from daemon.logs import fields
from kubelet.paths import is_own_socket_name
from plugin.registration import SocketIdentity

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 1.0


def directory_problem(directory: Path) -> str | None:
    """Return why no socket can be placed in ``directory``, None where it is usable."""
    try:
        status = directory.stat()
    except PermissionError:
        return (
            f"{directory}: permission denied; the kubelet's directory belongs to root, so the "
            "plugin runs with user id 0"
        )
    except OSError as error:
        return (
            f"{directory}: {error.strerror}; the kubelet is not set up yet or its directory is "
            "elsewhere: set the chart value kubeletDir to the directory that holds device-plugins"
        )
    if not stat.S_ISDIR(status.st_mode):
        return f"{directory}: not a directory; see the chart value kubeletDir"
    return None


def identity(path: Path) -> SocketIdentity | None:
    """Return the identity of a socket, None where there is no socket or it cannot be seen."""
    try:
        status = path.stat()
    except OSError:
        return None
    if not stat.S_ISSOCK(status.st_mode):
        return None
    return SocketIdentity(device=status.st_dev, inode=status.st_ino, changed_ns=status.st_ctime_ns)


def bind_problem(path: Path) -> str | None:
    """Return why no socket can be created at ``path``, None where one can; gRPC does not tell."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
        try:
            attempt.bind(str(path))
        except OSError as error:
            return error.strerror or str(error)
    path.unlink(missing_ok=True)
    return None


def remove_stale(directory: Path) -> list[str]:
    """Remove sockets of our name that nobody serves any more; return their names.

    A plugin that was killed leaves its socket. One that is still served belongs to a predecessor
    that is about to stop, and stays.
    """
    removed: list[str] = []
    for path in sorted(directory.iterdir()):
        # Connecting to an ordinary file is refused, too.
        if not is_own_socket_name(path.name) or identity(path) is None or not _is_refused(path):
            continue
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("Cannot remove a stale socket", extra=fields(path=path, error=error))
            continue
        removed.append(path.name)
        log.info("Removed a stale socket", extra=fields(path=path))
    return removed


def _is_refused(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_CONNECT_SECONDS)
        try:
            client.connect(str(path))
        except OSError as error:
            return error.errno == errno.ECONNREFUSED
    return False

"""Paths of the kubelet on a node, and the limits of sockets in them.

``device-plugins`` is hard-coded in the kubelet below ``/var/lib/kubelet`` and does not follow its
``--root-dir``; distributions that move the whole tree exist, hence the parameter.
"""

import os
import re
from pathlib import Path

#: The directory that holds ``device-plugins`` and ``pod-resources``.
DEFAULT_KUBELET_DIR = "/var/lib/kubelet"
#: ``sun_path`` of a Unix address has 108 bytes, one of them the final NUL.
SOCKET_PATH_LIMIT_BYTES = 107

_SOCKET_NAME = re.compile(r"npu-[0-9a-f]{8}\.sock")


class SocketPathError(ValueError):
    """A socket cannot have this path."""


def device_plugins_dir(kubelet_dir: str | os.PathLike[str]) -> Path:
    """Return the directory where the kubelet and its plugins put their sockets."""
    return Path(kubelet_dir, "device-plugins")


def registration_socket(kubelet_dir: str | os.PathLike[str]) -> Path:
    """Return the socket on which the kubelet takes registrations."""
    return device_plugins_dir(kubelet_dir) / "kubelet.sock"


def plugins_registry_dir(kubelet_dir: str | os.PathLike[str]) -> Path:
    """Return the directory that the kubelet watches for sockets of drivers."""
    return Path(kubelet_dir, "plugins_registry")


def driver_registration_socket(kubelet_dir: str | os.PathLike[str], driver: str) -> Path:
    """Return the socket by which the kubelet finds a driver."""
    return plugins_registry_dir(kubelet_dir) / f"{driver}-reg.sock"


def driver_socket(kubelet_dir: str | os.PathLike[str], driver: str) -> Path:
    """Return the socket of a driver's API, in the directory that the driver has for itself."""
    return Path(kubelet_dir, "plugins", driver, "dra.sock")


def pod_resources_socket(kubelet_dir: str | os.PathLike[str]) -> Path:
    """Return the socket on which the kubelet tells who holds which device."""
    return Path(kubelet_dir, "pod-resources", "kubelet.sock")


def new_socket_name() -> str:
    """Return a socket name never used before: ``npu-<8 hex digits>.sock``.

    A second server on a used path would take it over without an error, and stopping the first
    server would then delete the second one's socket; the kubelet also mixes up endpoints that
    register again under one name (kubernetes/kubernetes#121994, #127803).
    """
    # Not the module `secrets`, which brings all of OpenSSL.
    return f"npu-{os.urandom(4).hex()}.sock"


def is_own_socket_name(name: str) -> bool:
    """Tell whether ``name`` is one that :func:`new_socket_name` gives."""
    return _SOCKET_NAME.fullmatch(name) is not None


def check_socket_path(path: str | os.PathLike[str]) -> None:
    """Raise SocketPathError where ``path`` does not fit into a Unix socket address."""
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_LIMIT_BYTES:
        raise SocketPathError(
            f"{os.fspath(path)}: {length} bytes, "
            f"but a Unix socket path has at most {SOCKET_PATH_LIMIT_BYTES}"
        )

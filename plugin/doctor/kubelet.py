"""The kubelet's directory: is the kubelet there, is the plugin registered, is somebody else."""

import json
import socket
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from kubelet.paths import (
    device_plugins_dir,
    driver_registration_socket,
    driver_socket,
    is_own_socket_name,
    plugins_registry_dir,
    pod_resources_socket,
    registration_socket,
)
from npu.ids import device_of
from plugin import sockets
from plugin.checkpoint import FILE_NAME
from plugin.doctor.finding import Finding, fail, ok, warn

_CONNECT_SECONDS = 1.0
_TELLING_NAMES = ("npu", "rockchip", "rknn", "rk35", "ascend", "davinci")


def directory(kubelet_dir: Path, resources: Collection[str]) -> Iterator[Finding]:
    """Judge everything in the directory of device plugins."""
    folder = device_plugins_dir(kubelet_dir)
    problem = sockets.directory_problem(folder)
    if problem is not None:
        yield fail("kubelet", problem, "mount it into this container, or name it: --kubelet-dir")
        return
    yield _answers(registration_socket(kubelet_dir))
    names = [path.name for path in sorted(folder.iterdir()) if _is_socket(path)]
    own = [name for name in names if is_own_socket_name(name)]
    served = [name for name in own if _connects(folder / name) is None]
    if served:
        yield ok("plugin", f"serves {', '.join(served)}")
    else:
        yield fail(
            "plugin",
            "no socket of the device plugin is served here",
            "see `kubectl get pods` of the plugin's DaemonSet on this node, and its /readyz",
        )
    yield from _foreign(folder, [n for n in names if n not in own], resources)


def drivers(kubelet_dir: Path, names: Collection[str]) -> Iterator[Finding]:
    """Judge what hands NPUs out by claims; ``names`` are the drivers that this board needs."""
    problem = sockets.directory_problem(plugins_registry_dir(kubelet_dir))
    if problem is not None:
        yield fail("kubelet", problem, "mount it into this container, or name it: --kubelet-dir")
        return
    yield _answers(pod_resources_socket(kubelet_dir))
    for name in sorted(names):
        paths = driver_socket(kubelet_dir, name), driver_registration_socket(kubelet_dir, name)
        silent = [f"{path}: {why}" for path in paths if (why := _connects(path)) is not None]
        if silent:
            yield fail(
                "plugin",
                f"driver {name} is not served: {'; '.join(silent)}",
                "see `kubectl get pods` of the plugin's DaemonSet on this node, and its /readyz",
            )
        else:
            yield ok("plugin", f"serves driver {name}; /readyz tells whether the kubelet knows it")


def _answers(path: Path) -> Finding:
    problem = _connects(path)
    if problem is None:
        return ok("kubelet", f"{path} answers")
    return fail(
        "kubelet",
        f"{path}: {problem}",
        "start the kubelet; where it runs, its directory is elsewhere: set the chart value "
        "kubeletDir",
    )


def _foreign(folder: Path, names: list[str], resources: Collection[str]) -> Iterator[Finding]:
    suspects = [name for name in names if any(part in name.lower() for part in _TELLING_NAMES)]
    strange = [
        f"{resource} as {identifier}"
        for resource, identifier in _registered(folder / FILE_NAME, resources)
        if not _is_ours(identifier)
    ]
    if suspects or strange:
        text = "; ".join(
            [
                *(f"socket {name} looks like another NPU plugin" for name in suspects),
                *(f"the kubelet knows {item}, which is not this plugin's" for item in strange),
            ]
        )
        yield warn(
            "other plugins",
            text,
            "two plugins of one resource displace each other: uninstall the other one, or give "
            "this one another name (plugin.resourceNames)",
        )
    else:
        others = [name for name in names if name != "kubelet.sock"]
        yield ok("other plugins", f"none for NPUs ({len(others)} of other kinds)")


def _registered(path: Path, resources: Collection[str]) -> list[tuple[str, str]]:
    """Return what the kubelet's checkpoint says it was offered under our names, if it tells."""
    try:
        registered = json.loads(path.read_text())["Data"]["RegisteredDevices"] or {}
        return [
            (resource, str(identifier))
            for resource, identifiers in registered.items()
            if resource in resources
            for identifier in identifiers or ()
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _is_ours(identifier: str) -> bool:
    try:
        device_of(identifier)
    except ValueError:
        return False
    return True


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


def _connects(path: Path) -> str | None:
    """Return why nobody answers at a socket, None where somebody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_CONNECT_SECONDS)
        try:
            client.connect(str(path))
        except OSError as error:
            return error.strerror or str(error)
    return None

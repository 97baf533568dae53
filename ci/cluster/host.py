"""What a cluster needs of the machine, and what it changes there and takes back."""

import ctypes
import json
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ci import system
from ci.cluster.network import NETNS
from ci.command import run

_CAP_SYS_RESOURCE = 24
_INOTIFY_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
_BRIDGE_NETFILTER = Path("/proc/sys/net/bridge")
_BRIDGE_SWITCHES = (
    "bridge-nf-call-iptables",
    "bridge-nf-call-ip6tables",
    "bridge-nf-call-arptables",
)


class HostError(RuntimeError):
    """This machine cannot carry a cluster, and why."""


def _inotify_init() -> int:
    return int(ctypes.CDLL(None).inotify_init1(os.O_CLOEXEC))


def require_root() -> None:
    """Raise ``HostError`` unless the process is root's."""
    if os.geteuid() != 0:
        message = (
            "the cluster makes network namespaces, mounts and control groups: run it as root (sudo)"
        )
        raise HostError(message)


def prepare() -> None:
    """Check the machine and bring what is missing: packages, kernel modules."""
    require_root()
    if platform.machine() != "x86_64":
        message = f"the cluster's programs are pinned for x86-64, this is {platform.machine()}"
        raise HostError(message)
    system.ensure(system.CLUSTER, purpose="the embedded cluster")
    _load_bridge_netfilter()
    if not Path("/sys/module/overlay").exists():
        _load("overlay")


def shortage(inotify_init: Callable[[], int] = _inotify_init) -> str | None:
    """Return what the machine has run out of and what to do, None where nothing is short.

    Kubelets, container runtimes and Prometheus each take some of the few inotify instances that a
    user may have, and say nothing useful without one.
    """
    descriptor = inotify_init()
    if descriptor >= 0:
        os.close(descriptor)
        return None
    most = _INOTIFY_INSTANCES.read_text().strip()
    return (
        f"no inotify instance is left (fs.inotify.max_user_instances is {most}): take another "
        "cluster down, or allow more with sysctl"
    )


def _load(module: str) -> None:
    system.ensure(system.MODULES, purpose=f"loading the kernel module {module}")
    run([system.which("modprobe") or "modprobe", module], purpose=f"load the module {module}")


def _load_bridge_netfilter() -> None:
    """Load br_netfilter without changing how the machine's own bridges behave.

    kube-proxy needs it inside the nodes. Its switches are per network namespace (Linux 5.3)
    and on in a new one; here they are turned off again, lest the machine's firewall begins to
    filter traffic between its virtual machines.
    """
    if _BRIDGE_NETFILTER.is_dir():
        return
    _load("br_netfilter")
    for name in _BRIDGE_SWITCHES:
        with suppress(OSError):
            (_BRIDGE_NETFILTER / name).write_text("0\n")


def can_lower_oom_score(status: Path = Path("/proc/self/status")) -> bool:
    """Tell whether this process has CAP_SYS_RESOURCE (capabilities(7))."""
    for line in status.read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)
    return False


def snapshotter(folder: Path) -> str:
    """Return the containerd snapshotter that works below ``folder``."""
    kind = run(["stat", "-f", "-c", "%T", folder], purpose=f"ask for the file system of {folder}")
    return "native" if kind.strip() in {"overlayfs", "tmpfs"} else "overlayfs"


class Footprint:
    """Folders that had to be made on the machine as mount points, to be removed at the end.

    Kept in ``file``; both methods are called under the registry's lock.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def make(self, folders: tuple[Path, ...]) -> None:
        """Create the folders that are missing and remember which."""
        made = self._made()
        if not NETNS.is_dir() and str(NETNS) not in made:
            # Made a mount point by the first `ip netns add`.
            made.append(str(NETNS))
        for folder in folders:
            missing = [path for path in (folder, *folder.parents) if not path.exists()]
            for path in reversed(missing):
                path.mkdir()
                made.append(str(path))
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(made))

    def clear(self) -> None:
        """Remove what was made, as far as it is empty and nobody else's by now."""
        made = [Path(name) for name in self._made()]
        if NETNS in made and NETNS.is_dir() and not any(NETNS.iterdir()):
            for _ in range(_mounts(NETNS)):
                run(["umount", NETNS], purpose=f"unmount {NETNS}")
        for path in reversed(made):
            with suppress(OSError):
                path.rmdir()
        self._file.unlink(missing_ok=True)

    def _made(self) -> list[str]:
        try:
            names = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return []
        return [name for name in names if isinstance(name, str)]


def _mounts(target: Path) -> int:
    """Count the mounts on ``target``. A folder bound on itself looks like none to stat(2)."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return sum(line.split()[4] == str(target) for line in lines)

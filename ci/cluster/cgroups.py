"""The control groups that nodes hang their Pods under, on cgroup v1 and v2.

Each node has a group of its own (``cgroupRoot`` of its kubelet), so that kubelets on one
machine do not clean up each other's Pods.
"""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ci.patience import patient

MOUNT = Path("/sys/fs/cgroup")
_V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")


class CgroupError(RuntimeError):
    """The machine's control groups cannot carry a kubelet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchies:
    """Where groups are made: one folder on v2, one per controller on v1.

    On v1 a cgroup2 hierarchy without controllers may be mounted as well ("hybrid"). Nothing is
    made there by us, but runc mirrors its groups into it.
    """

    roots: tuple[Path, ...]
    unified: bool
    mirrors: tuple[Path, ...] = ()

    def create(self, group: str) -> None:
        """Create ``group`` (a path without leading slash) ready for a kubelet below it."""
        for root in self.roots:
            path = root
            for part in Path(group).parts:
                if self.unified:
                    _delegate(path)
                path /= part
                path.mkdir(exist_ok=True)
                if (path / "cpuset.cpus").exists() and not self.unified:
                    _inherit_cpuset(path)
            if self.unified:
                _delegate(path)
                _require_controllers(path)

    def remove(self, group: str) -> None:
        """Remove ``group`` and all below. Its processes must have ended."""
        for root in (*self.roots, *self.mirrors):
            top = root / group
            deadline = time.monotonic() + patient(5.0)
            while top.is_dir():
                for folder in [*sorted(_below(top), reverse=True), top]:
                    # Busy for some milliseconds after its last process died.
                    with suppress(OSError):
                        folder.rmdir()
                if top.is_dir():
                    if time.monotonic() > deadline:
                        message = f"{top} cannot be removed: processes are still in it"
                        raise CgroupError(message)
                    time.sleep(0.05)

    def exists(self, group: str) -> bool:
        """Tell whether any hierarchy has ``group``."""
        return any((root / group).is_dir() for root in (*self.roots, *self.mirrors))


def _below(top: Path) -> list[Path]:
    return [path for path in top.rglob("*") if path.is_dir()]


def _delegate(path: Path) -> None:
    for controller in _V2_CONTROLLERS:
        # A controller may be missing from the kernel (hugetlb) or be on already.
        with suppress(OSError):
            (path / "cgroup.subtree_control").write_text(f"+{controller}")


def _require_controllers(path: Path) -> None:
    present = set((path / "cgroup.controllers").read_text().split())
    missing = {"cpu", "memory", "pids", "cpuset"} - present
    if missing:
        message = (
            f"{path} lacks the controllers {', '.join(sorted(missing))}, which a kubelet needs: "
            f"see {MOUNT}/cgroup.controllers and the kernel's command line (cgroup_disable=)"
        )
        raise CgroupError(message)


def _inherit_cpuset(path: Path) -> None:
    # A new v1 cpuset group is empty and takes no process before it has both.
    for name in ("cpuset.cpus", "cpuset.mems"):
        if not (path / name).read_text().strip():
            (path / name).write_text((path.parent / name).read_text())


def hierarchies(mount: Path = MOUNT, mountinfo: Path = Path("/proc/self/mountinfo")) -> Hierarchies:
    """Find the machine's cgroup hierarchies. Hybrid set-ups count as v1, as runc sees them."""
    if (mount / "cgroup.controllers").is_file():
        return Hierarchies(roots=(mount,), unified=True)
    mounted: dict[str, list[Path]] = {"cgroup": [], "cgroup2": []}
    for fields in map(str.split, mountinfo.read_text().splitlines()):
        kind, path = fields[fields.index("-") + 1], Path(fields[4])
        if kind in mounted and path.parent == mount:
            mounted[kind].append(path)
    if not any("memory" in path.name.split(",") for path in mounted["cgroup"]):
        message = f"no cgroup with a memory controller is mounted below {mount}"
        raise CgroupError(message)
    return Hierarchies(
        roots=tuple(mounted["cgroup"]), unified=False, mirrors=tuple(mounted["cgroup2"])
    )

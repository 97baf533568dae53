"""What of a node survives a power cut, and where on the node it is seen."""

import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from ci.cluster import config
from ci.cluster.plan import NodePlan

BOARD = Path("/var/lib/npu-platform/board")
# What a node has of its own: mount point on the node → folder of the node's disk.
OWN_FOLDERS = {
    Path("/etc/cdi"): "cdi",
    Path("/etc/cni/net.d"): "cni-net.d",
    Path("/opt/npu"): "opt-npu",
    Path("/var/lib/cni"): "cni",
    Path("/var/lib/containerd"): "containerd",
    Path("/var/lib/kubelet"): "kubelet",
    Path("/var/log/containers"): "log-containers",
    Path("/var/log/pods"): "log-pods",
    BOARD: "board",
}
# The kubelet insists on these and would set them for the whole machine (container manager,
# setupKernelTunables). It is shown that all is well instead.
_TUNABLES = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The folder of one node."""

    folder: Path
    node: NodePlan

    @property
    def board(self) -> Path:
        """The machine's path of what the node sees as ``/var/lib/npu-platform/board``."""
        return self.folder / OWN_FOLDERS[BOARD]

    def write(self) -> None:
        """Bring the disk into the state in which a node boots from it; what it has stays."""
        for name in OWN_FOLDERS.values():
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "cni-net.d" / "10-pods.conflist").write_text(config.pod_network(self.node))
        machine_id = self.folder / "machine-id"
        if not machine_id.exists():
            machine_id.write_text(f"{uuid.uuid4().hex}\n")
        # A new one at each boot is how the kubelet notices that the node was off.
        (self.folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
        for name, value in _TUNABLES.items():
            path = self.folder / "sysctl" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")

    def binds(self) -> list[tuple[Path, Path]]:
        """Return what the node mounts: (place on the node, source on the disk)."""
        binds = [(target, self.folder / name) for target, name in OWN_FOLDERS.items()]
        files = {
            Path("/etc/machine-id"): self.folder / "machine-id",
            Path("/proc/sys/kernel/random/boot_id"): self.folder / "boot_id",
        } | {Path("/proc/sys") / name: self.folder / "sysctl" / name for name in _TUNABLES}
        return binds + [(target, source) for target, source in files.items() if target.exists()]

    def destroy(self) -> None:
        """Throw everything away."""
        if self.folder.exists():
            shutil.rmtree(self.folder)

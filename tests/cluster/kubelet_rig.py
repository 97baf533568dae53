"""A real kubelet of the cluster, and the plugin as a process of this machine beside it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ci.cluster import Cluster
from tests.component.plugin.plugin_process import PluginProcess, write_board


class RealRig:
    """The kubelet of ``node``; its directory is reached through the node's init process."""

    def __init__(self, cluster: Cluster, node: str, scratch: Path) -> None:
        self.kubelet_dir = cluster.node_root(node) / "var/lib/kubelet"
        self.board = write_board(scratch / "board")
        self.processes: list[PluginProcess] = []
        self._cluster = cluster
        self._node = node
        self._scratch = scratch

    def start_plugin(self) -> PluginProcess:
        """Start a plugin."""
        self.processes.append(PluginProcess(self._scratch, self.kubelet_dir, self.board))
        return self.processes[-1]

    def restart_kubelet(self) -> None:
        """Restart the node's kubelet."""
        self._cluster.restart("kubelet", self._node)


@contextmanager
def real_rig(cluster: Cluster) -> Iterator[RealRig]:
    """Yield a rig on the last node, and end its plugins."""
    with tempfile.TemporaryDirectory(prefix="npu-", dir="/tmp") as scratch:
        rig = RealRig(cluster, cluster.nodes[-1], Path(scratch))
        try:
            yield rig
        finally:
            for process in rig.processes:
                process.end()

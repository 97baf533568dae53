"""A real kubelet of the cluster, and the plugin as a process of this machine beside it."""

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from ci.cluster import Cluster, pause
from ci.kube import Json, Kube, until
from tests.component.plugin.contract import Given
from tests.component.plugin.plugin_process import RESOURCE, PluginProcess, write_board

_GIVEN: Final = ("NPU_", "RKNN_")
_SECONDS: Final = 90.0


class RealRig:
    """The kubelet of ``node``; its directory is reached through the node's init process."""

    def __init__(self, cluster: Cluster, node: str, scratch: Path) -> None:
        self.board = write_board(scratch / "board")
        self.processes: list[PluginProcess] = []
        self.pods: list[str] = []
        self._cluster = cluster
        self._node = node
        self._scratch = scratch
        self._kube = Kube(kubeconfig=cluster.kubeconfig)

    @property
    def kubelet_dir(self) -> Path:
        """The kubelet's directory, at another path after each power cycle."""
        return self._cluster.node_root(self._node) / "var/lib/kubelet"

    def start_plugin(self) -> PluginProcess:
        """Start a plugin."""
        self.processes.append(PluginProcess(self._scratch, self.kubelet_dir, self.board))
        return self.processes[-1]

    def restart_kubelet(self) -> None:
        """Restart the node's kubelet."""
        self._cluster.restart("kubelet", self._node)

    def power_cycle(self) -> None:
        """Cut the node's power and switch it on again."""
        self._cluster.stop_node(self._node)
        self._cluster.start_node(self._node)

    def run_pod(self, name: str) -> None:
        """Start a Pod on the node, once the node's status offers an NPU."""
        until(
            partial(self._kube.allocatable, RESOURCE),
            lambda seen: seen[self._node] == "1",
            seconds=_SECONDS,
            what=f"allocatable {RESOURCE} on {self._node}",
        )
        self.pods.append(name)
        self._kube.apply(self._pod(name))
        until(
            lambda: self._seen(name)["status"].get("phase"),
            lambda phase: phase == "Running",
            seconds=_SECONDS,
            what=f"Pod {name} Running",
        )

    def given(self, name: str) -> Given:
        """Return what the container's process has."""
        process = self._process(name)
        nodes = Path(f"/proc/{process}/root/dev/dri").iterdir()
        return Given(
            environment={k: v for k, v in _environment(process).items() if k.startswith(_GIVEN)},
            nodes=frozenset(f"/dev/dri/{node.name}" for node in nodes),
        )

    def restart_container(self, name: str) -> None:
        """Kill the container's only process."""
        before = self._process(name)
        os.kill(before, signal.SIGKILL)
        until(
            partial(self._find, name),
            lambda process: process not in (None, before),
            seconds=_SECONDS,
            what=f"another container of Pod {name}",
        )

    def await_refusal(self, name: str) -> str:
        """Wait until the Pod has failed for good."""
        status = until(
            lambda: self._seen(name)["status"],
            lambda status: status.get("reason") == "UnexpectedAdmissionError",
            seconds=_SECONDS,
            what=f"Pod {name} refused",
        )
        return str(status["message"])

    def close(self) -> None:
        """End plugins and Pods."""
        for process in self.processes:
            process.end()
        if self.pods:
            self._kube.delete("pod", "--force", "--ignore-not-found", *self.pods)

    def _pod(self, name: str) -> dict[str, object]:
        container = {
            "name": "main",
            "image": pause.IMAGE,
            "imagePullPolicy": "Never",
            "resources": {"limits": {RESOURCE: 1}},
        }
        spec = {
            "nodeName": self._node,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}

    def _seen(self, name: str) -> Json:
        return self._kube.get("pod", name)

    def _process(self, name: str) -> int:
        found = self._find(name)
        assert found is not None, f"Pod {name} has no process"
        return found

    def _find(self, name: str) -> int | None:
        """Return the process of the container; that of the sandbox was given nothing."""
        group = f"pod{self._seen(name)['metadata']['uid']}"
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                ours = group in (folder / "cgroup").read_text()
                if ours and "NPU_DEVICE_IDS" in _environment(int(folder.name)):
                    return int(folder.name)
            except (FileNotFoundError, ProcessLookupError):
                continue
        return None


def _environment(process: int) -> dict[str, str]:
    words = Path(f"/proc/{process}/environ").read_bytes().decode().split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)


@contextmanager
def real_rig(cluster: Cluster) -> Iterator[RealRig]:
    """Yield a rig on the last node, and end its plugins and Pods."""
    with tempfile.TemporaryDirectory(prefix="npu-", dir="/tmp") as scratch:
        rig = RealRig(cluster, cluster.nodes[-1], Path(scratch))
        try:
            yield rig
        finally:
            rig.close()

"""A cluster as its users see it: up, down, and what happens to machines in between."""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from ci.cache import cache_dir
from ci.cluster import (
    admission,
    control_plane,
    disk,
    host,
    network,
    node,
    plan,
    processes,
    programs,
    removal,
)
from ci.cluster.admission import ClusterError
from ci.cluster.control_plane import ControlPlane
from ci.cluster.daemons import DaemonError
from ci.cluster.instance import Instance, InstanceError, Registry, registry
from ci.cluster.node import Node
from ci.cluster.programs import Programs

_READY_SECONDS = 180.0
_IMPORTS_AT_ONCE = 2
#: What ``restart`` takes, and whether it is a node's.
RESTARTABLE = {
    "apiserver": ("kube-apiserver", False),
    "controller-manager": ("kube-controller-manager", False),
    "etcd": ("etcd", False),
    "scheduler": ("kube-scheduler", False),
    "containerd": ("containerd", True),
    "kube-proxy": ("kube-proxy", True),
    "kubelet": ("kubelet", True),
}


class Cluster:
    """One cluster of this machine, running or not, known by its name."""

    def __init__(
        self, name: str = "demo", *, instances: Registry | None = None, cache: Path | None = None
    ) -> None:
        self.name = name
        self._registry = instances or registry()
        self._cache = cache or cache_dir()
        # Fails at once for a name that no instance can have.
        plan.Plan(name=name, index=0)

    @property
    def folder(self) -> Path:
        """Everything the instance keeps on disk."""
        return self._registry.folder(self.name)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes, switched on or off."""
        return [one.name for one in self._instance().plan.nodes(self._instance().nodes)]

    @property
    def version(self) -> str:
        """Version of Kubernetes."""
        return self._instance().version

    @property
    def exists(self) -> bool:
        """Tell whether there is such a cluster, whatever its state."""
        return self._registry.read(self.name) is not None

    def node_board(self, name: str) -> Path:
        """Return the machine's path of a node's ``/var/lib/npu-platform/board``."""
        return self._node(name).board

    def node_root(self, name: str) -> Path:
        """Return the machine's way to the files that a running node sees.

        Valid until the node is switched off; raises ClusterError where it is off.
        """
        init = self._node(name).init()
        if init is None:
            message = f"node {name} is off"
            raise ClusterError(message)
        return Path(f"/proc/{init.pid}/root")

    def up(
        self,
        *,
        nodes: int | None = None,
        version: str | None = None,
        containerd: str | None = None,
    ) -> None:
        """Bring the cluster up, or what is missing of it, and wait until all nodes are Ready.

        Absent values mean 2 nodes, ``kubernetes.DEFAULT_VERSION`` and Debian's containerd for a
        new cluster, what it has for an existing one. More nodes may be added; other versions
        need ``down`` first.
        """
        host.prepare()
        with self._registry.locked_instance(self.name):
            instance = admission.admit(
                self._registry, self.name, nodes=nodes, version=version, containerd=containerd
            )
            parts = self._programs()
            began = time.monotonic()
            _say(f"cluster {self.name}: Kubernetes {instance.version}, {instance.nodes} nodes")
            control = self._start_api(instance, parts)
            for one in self._nodes(instance):
                one.boot(parts, instance)
                one.start_containerd(parts)
                one.load(parts, parts.pause_image)
            control.wait_ready()
            control.bind_roles(parts)
            control.start(parts)
            for one in self._nodes(instance):
                self._start_node_daemons(one, instance, control, parts)
            self._wait_nodes(instance, control, parts)
            _say(f"cluster {self.name} is up after {time.monotonic() - began:.1f} s")

    def up_api(self) -> None:
        """Bring up etcd and API server alone, for what needs an API and no machines.

        No controller runs: Nodes are what somebody creates, and stay as he made them.
        """
        host.prepare()
        with self._registry.locked_instance(self.name):
            instance = admission.admit(
                self._registry, self.name, nodes=1, version=None, containerd=None
            )
            parts = self._programs()
            control = self._start_api(instance, parts)
            control.wait_ready()
            control.bind_roles(parts)

    def beside_the_api(self) -> list[str]:
        """Return the start of a command line whose rest runs in the control plane's network.

        The loopback addresses there are the cluster's own.
        """
        return network.entering(self._instance().plan.namespace)

    def _start_api(self, instance: Instance, parts: Programs) -> ControlPlane:
        with self._registry.locked():
            removal.footprint(self._registry).make(tuple(disk.OWN_FOLDERS))
        network.create_lan(instance.plan)
        control = self._control(instance)
        control.make_certificates(parts)
        control.start(parts, ("etcd", "kube-apiserver"))
        return control

    def _start_node_daemons(
        self, one: Node, instance: Instance, control: ControlPlane, parts: Programs
    ) -> None:
        one.start_kube_proxy(parts, control.proxy_kubeconfig(parts))
        one.start_kubelet(
            parts,
            instance,
            kubeconfig=control.node_kubeconfig(parts, one.name, one.disk),
            client_ca=control.client_ca,
        )

    def _wait_nodes(self, instance: Instance, control: ControlPlane, parts: Programs) -> None:
        ready: dict[str, bool] = {}

        def all_ready() -> bool:
            nonlocal ready
            ready = control.ready_nodes(parts)
            nodes = self._nodes(instance)
            return all(ready.get(one.name, False) for one in nodes) and control.admits_pods(parts)

        if not processes.wait_until(all_ready, _READY_SECONDS):
            if all(ready.get(one.name, False) for one in self._nodes(instance)):
                message = f"no service account yet, see {control.log('kube-controller-manager')}"
                raise ClusterError(message)
            late = [one for one in self._nodes(instance) if not ready.get(one.name, False)]
            logs = ", ".join(str(one.log("kubelet")) for one in late)
            message = (
                f"{', '.join(one.name for one in late)} of cluster {self.name} not Ready after "
                f"{_READY_SECONDS:.0f} s; see {logs}"
            )
            raise ClusterError("; ".join(filter(None, (message, host.shortage()))))

    def down(self) -> None:
        """Take the cluster down whatever its state and leave nothing of it on the machine."""
        host.require_root()
        removal.remove(self.name, self._registry)

    def exec(self, node_name: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command inside a node and return its result, whatever its status."""
        return self._node(node_name).execute(argv, environment=self._environment())

    def exec_interactive(self, node_name: str, argv: Sequence[str]) -> int:
        """Run a command inside a node on the caller's terminal and return its status."""
        terminal = {name: os.environ[name] for name in ("TERM",) if name in os.environ}
        environment = self._environment() | terminal
        return self._node(node_name).interactive(argv, environment=environment)

    def _environment(self) -> dict[str, str]:
        return self._programs().environment

    def restart(self, what: str, node_name: str | None = None) -> None:
        """End and start one program: a key of ``RESTARTABLE``; a node's on all nodes by default.

        Returns when it serves again.
        """
        if what not in RESTARTABLE:
            message = f"cannot restart {what!r}: known are {', '.join(RESTARTABLE)}"
            raise ClusterError(message)
        component, of_node = RESTARTABLE[what]
        instance = self._instance()
        with self._registry.locked_instance(self.name):
            parts = self._programs()
            control = self._control(instance)
            if not of_node:
                control.end(component)
                control.start(parts, (component,))
                control.wait_answering(parts)
                return
            chosen = [self._node(node_name)] if node_name else self._nodes(instance)
            for one in chosen:
                one.end(component)
                if component == "containerd":
                    one.start_containerd(parts)
                else:
                    self._start_node_daemons(one, instance, control, parts)
                    one.wait()

    def stop_node(self, name: str) -> None:
        """Cut the power of a node. Its disk stays; the cluster notices after 20 seconds."""
        one = self._node(name)
        with self._registry.locked_instance(self.name):
            one.cut_power()

    def start_node(self, name: str) -> None:
        """Switch a node on again and wait until its kubelet and its kube-proxy serve."""
        one, instance = self._node(name), self._instance()
        with self._registry.locked_instance(self.name):
            parts = self._programs()
            one.boot(parts, instance)
            one.start_containerd(parts)
            self._start_node_daemons(one, instance, self._control(instance), parts)
            one.wait()

    def load_images(self, archives: Iterable[Path]) -> list[str]:
        """Import image archives (Docker's or OCI's) on all nodes; return the images' names."""
        parts = self._programs()
        nodes = self._nodes(self._instance())
        names: dict[str, None] = {}
        with ThreadPoolExecutor(max_workers=_IMPORTS_AT_ONCE) as pool:
            for archive in archives:
                loaded = pool.map(partial(Node.load, programs=parts, image=Path(archive)), nodes)
                names |= dict.fromkeys(name for each in loaded for name in each)
        return list(names)

    def logs(self) -> dict[str, Path]:
        """Return the log files by component, a node's as ``NODE-COMPONENT``."""
        folder = self.folder / "log"
        return {path.stem: path for path in sorted(folder.glob("*.log"))}

    def status(self) -> list[tuple[str, str, str]]:
        """Return rows of (what, state, detail) for people."""
        instance = self._instance()
        control = self._control(instance)
        running = control.running()
        rows = [
            (name, "running" if name in running else "stopped", str(control.log(name)))
            for name in control_plane.COMPONENTS
        ]
        answering = control.is_ready()
        ready = control.ready_nodes(self._programs()) if answering else {}
        for one in self._nodes(instance):
            if one.init() is None:
                rows.append((one.name, "off", "`node start` switches it on"))
                continue
            missing = sorted(set(node.COMPONENTS) - one.running())
            state = "Ready" if ready.get(one.name) else "NotReady" if answering else "unknown"
            detail = f"not running: {', '.join(missing)}" if missing else str(one.log("kubelet"))
            rows.append((one.name, state, detail))
        return rows

    def _instance(self) -> Instance:
        instance = self._registry.read(self.name)
        if instance is None:
            message = f"there is no cluster {self.name}: make it by `up --name {self.name}`"
            raise InstanceError(message)
        return instance

    def _programs(self) -> Programs:
        instance = self._instance()
        return programs.provide(
            instance.version, self._cache, containerd_version=instance.containerd
        )

    def _control(self, instance: Instance) -> ControlPlane:
        return ControlPlane(instance, self.folder)

    def _nodes(self, instance: Instance) -> list[Node]:
        return [self._node_of(instance.plan, one) for one in instance.plan.nodes(instance.nodes)]

    def _node_of(self, here: plan.Plan, one: plan.NodePlan) -> Node:
        return Node(here, one, self.folder / one.name, self.folder / "log")

    def _node(self, name: str) -> Node:
        for one in self._nodes(self._instance()):
            if one.name == name:
                return one
        message = f"cluster {self.name} has no node {name!r}: known are {', '.join(self.nodes)}"
        raise ClusterError(message)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


__all__ = ["RESTARTABLE", "Cluster", "ClusterError", "DaemonError"]

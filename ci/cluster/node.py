"""One node: a machine of its own as far as a kubelet can tell.

Its processes share a process namespace whose init is ``pause``. Ending that init is a power
cut: the kernel kills everything below it, containers included, at the same instant, and the
mounts go with the last process. What is below the node's folder is its disk and survives.
"""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from ci.cluster import cgroups, config, daemons, host, network, processes
from ci.cluster.config import Runtime
from ci.cluster.daemons import DaemonError
from ci.cluster.disk import Disk
from ci.cluster.instance import Instance
from ci.cluster.plan import NodePlan, Plan
from ci.cluster.processes import Process
from ci.cluster.programs import Programs
from ci.command import CommandError, run

COMPONENTS = ("containerd", "kubelet", "kube-proxy")
_BOOT_SECONDS = 60.0
_START_SECONDS = 120.0
_APPEAR_SECONDS = 10.0
_HEALTH_PORTS = {"kubelet": 10248, "kube-proxy": 10256}
_BOOT = Path(__file__).with_name("boot.sh")


class Node:
    """Boots, feeds and cuts the power of one node."""

    def __init__(self, plan: Plan, node: NodePlan, folder: Path, log_folder: Path) -> None:
        self._plan = plan
        self._node = node
        self._logs = log_folder
        self._disk = Disk(folder=folder, node=node)
        self.name = node.name
        self.disk = folder

    @property
    def board(self) -> Path:
        """The machine's path of what the node sees as ``/var/lib/npu-platform/board``."""
        return self._disk.board

    def log(self, component: str) -> Path:
        """Return the log file of a component."""
        return self._logs / f"{self.name}-{component}.log"

    def init(self) -> Process | None:
        """Return the process that is the node's init, None if the node is off."""
        inode = network.namespace_inode(self._node.namespace)
        if inode is None:
            return None
        return next(
            (
                process
                for process in processes.running()
                if process.net_namespace == inode
                and process.innermost_pid == 1
                and process.program == "pause"
            ),
            None,
        )

    def running(self) -> set[str]:
        """Return the components that run on the node."""
        init = self.init()
        if init is None:
            return set()
        return {
            process.program
            for process in processes.running()
            if process.pid_namespace == init.pid_namespace
        } & set(COMPONENTS)

    def boot(self, programs: Programs, instance: Instance) -> None:
        """Switch the node on, if it is off, up to where its daemons can start."""
        others = tuple(one for one in self._plan.nodes(instance.nodes) if one != self._node)
        if self.init() is not None:
            # Nodes may have been added since.
            network.route_between(self._node, others)
            return
        self.cut_power()
        network.create_node(self._plan, self._node)
        network.route_between(self._node, others)
        cgroups.hierarchies().create(self._node.cgroup)
        self._disk.write()
        log = self.log("boot")
        daemons.start(
            [
                *network.entering(self._node.namespace),
                *("unshare", "--mount", "--pid", "--uts", "--fork", "--propagation=slave", "--"),
                *("/bin/sh", _BOOT, self.name, programs.pause),
                *(f"{target}={source}" for target, source in self._disk.binds()),
            ],
            log=log,
            environment=programs.environment,
        )
        if not processes.wait_until(lambda: self.init() is not None, _BOOT_SECONDS):
            message = f"{self.name} does not boot, {log} ends with:\n{daemons.tail(log)}"
            raise DaemonError(message)

    def start_containerd(self, programs: Programs) -> None:
        """Start containerd, if it does not run, and wait until it answers."""
        if "containerd" not in self.running():
            settings = self.disk / "containerd.toml"
            version = run(
                [programs.find("containerd"), "--version"], purpose="ask containerd's version"
            )
            settings.write_text(
                config.containerd(
                    Runtime(
                        cni_plugins=programs.cni_plugins,
                        restrict_oom_score_adj=not host.can_lower_oom_score(),
                        snapshotter=host.snapshotter(self.disk),
                        cdi=" 1.6." not in version,
                    )
                )
            )
            self._start("containerd", programs, [f"--config={settings}"])
        ask = [str(programs.find("ctr")), "version"]
        environment = programs.environment
        self._await(
            lambda: self.execute(ask, environment=environment).returncode == 0, "containerd"
        )

    def start_kubelet(
        self, programs: Programs, instance: Instance, *, kubeconfig: Path, client_ca: Path
    ) -> None:
        """Start the kubelet, if it does not run."""
        if "kubelet" in self.running():
            return
        settings = self.disk / "kubelet.yaml"
        settings.write_text(config.kubelet(self._node, instance.version, client_ca))
        self._start(
            "kubelet",
            programs,
            [
                f"--config={settings}",
                f"--kubeconfig={kubeconfig}",
                f"--hostname-override={self.name}",
                f"--node-ip={self._node.address}",
                "--v=2",
            ],
        )

    def start_kube_proxy(self, programs: Programs, kubeconfig: Path) -> None:
        """Start kube-proxy, if it does not run."""
        if "kube-proxy" not in self.running():
            self._start(
                "kube-proxy", programs, config.kube_proxy(self._plan, self._node, kubeconfig)
            )

    def wait(self) -> None:
        """Wait until kubelet and kube-proxy serve their health ports."""
        init = self._init_or_raise()
        for component, port in _HEALTH_PORTS.items():
            self._await(partial(daemons.listens, init.pid, port), component)

    def _start(self, component: str, programs: Programs, arguments: Sequence[str]) -> None:
        daemons.start(
            [*self._entering(), programs.find(component), *arguments],
            log=self.log(component),
            environment=programs.environment,
        )

    def _await(self, condition: Callable[[], bool], component: str) -> None:
        def settled() -> bool:
            return condition() or component not in self.running()

        # The program needs a moment to appear under its own name.
        processes.wait_until(lambda: component in self.running(), _APPEAR_SECONDS)
        if not processes.wait_until(settled, _START_SECONDS) or component not in self.running():
            log = self.log(component)
            message = f"{component} of {self.name} does not come up, {log} ends with:\n"
            raise DaemonError(message + daemons.tail(log))

    def end(self, component: str) -> None:
        """End one daemon of the node; Pods go on."""
        init = self._init_or_raise()
        processes.end(
            lambda process: (
                process.pid_namespace == init.pid_namespace and process.program == component
            ),
            patience_seconds=5.0,
            what=f"{component} of {self.name}",
        )

    def _init_or_raise(self) -> Process:
        init = self.init()
        if init is None:
            message = f"{self.name} is off: start it by `node start {self.name}`"
            raise DaemonError(message)
        return init

    def _entering(self) -> list[str]:
        target = self._init_or_raise().pid
        return ["nsenter", f"--target={target}", *("--mount", "--net", "--pid", "--uts", "--")]

    def execute(
        self,
        argv: Sequence[str | Path],
        *,
        environment: Mapping[str, str],
        stdin: bytes = b"",
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside the node and return its result, whatever its status."""
        done = subprocess.run(
            [*self._entering(), *map(str, argv)],
            input=stdin,
            capture_output=True,
            check=False,
            env=dict(environment),
        )
        return subprocess.CompletedProcess(
            args=[str(word) for word in argv],
            returncode=done.returncode,
            stdout=done.stdout.decode(errors="replace"),
            stderr=done.stderr.decode(errors="replace"),
        )

    def interactive(self, argv: Sequence[str], *, environment: Mapping[str, str]) -> int:
        """Run a command inside the node on the caller's terminal and return its status."""
        done = subprocess.run([*self._entering(), *argv], check=False, env=dict(environment))
        return done.returncode

    def load(self, programs: Programs, image: Path) -> list[str]:
        """Import an image archive into the node's containerd and return what it names."""
        with image.open("rb") as archive:
            done = subprocess.run(
                [
                    *(*self._entering(), str(programs.find("ctr")), "--namespace=k8s.io"),
                    *("images", "import", "-"),
                ],
                stdin=archive,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                env=programs.environment,
            )
        if done.returncode != 0:
            message = f"{self.name} does not take {image}: {done.stderr.strip()}"
            raise CommandError(message)
        return [
            line.split()[1] for line in done.stdout.splitlines() if line.startswith("unpacking ")
        ]

    def cut_power(self) -> None:
        """Kill everything on the node at once and take its network and control groups away."""
        inode = network.namespace_inode(self._node.namespace)
        if inode is not None:
            init = self.init()
            spaces = {init.pid_namespace} if init is not None else set()

            def lives_here(process: Process) -> bool:
                return process.net_namespace == inode or process.pid_namespace in spaces

            processes.end(lives_here, patience_seconds=0.0, what=self.name)
        network.delete_namespace(self._node.namespace)
        cgroups.hierarchies().remove(self._node.cgroup)

    def destroy(self) -> None:
        """Cut the power and throw the disk away."""
        self.cut_power()
        self._disk.destroy()

    def has_traces(self) -> bool:
        """Tell whether anything of the node is on the machine, running or not."""
        return (
            self.disk.exists()
            or (network.NETNS / self._node.namespace).exists()
            or cgroups.hierarchies().exists(self._node.cgroup)
        )

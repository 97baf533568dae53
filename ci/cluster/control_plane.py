"""The control plane of an instance: certificates, etcd, API server and its controllers.

It runs in the instance's network namespace, on files below the instance's folder.
"""

import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from ci.cluster import config, daemons, network, processes
from ci.cluster.daemons import DaemonError
from ci.cluster.instance import Instance
from ci.cluster.processes import Process
from ci.cluster.programs import Programs
from ci.command import CommandError, run
from ci.patience import patient

# In the order of their start. The API server drains for up to a minute when asked to end.
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_PATIENCE_SECONDS = {"etcd": 5.0, "kube-apiserver": 3.0}
_ETCD_PORT = 2379
_START_SECONDS = 180.0
_APPEAR_SECONDS = 10.0
# A hanging API server must not hang whoever polls it.
_REQUEST_SECONDS = 5.0


class ControlPlane:
    """Starts, restarts and ends the programs of one instance's control plane."""

    def __init__(self, instance: Instance, folder: Path) -> None:
        self._instance = instance
        self._plan = instance.plan
        self._folder = folder
        self._pki = folder / "pki"
        self._kubeconfigs = folder / "kubeconfigs"
        self.kubeconfig = folder / "kubeconfig"

    def log(self, component: str) -> Path:
        """Return the log file of a component."""
        return self._folder / "log" / f"{component}.log"

    def make_certificates(self, programs: Programs) -> None:
        """Make what is missing of certificates and kubeconfig files."""
        settings = self._write_settings("kubeadm.yaml", node="control-plane")
        if not self.kubeconfig.exists():
            self._kubeadm(programs, "init", "phase", "certs", "all", f"--config={settings}")
            for kind in ("admin", "super-admin", "controller-manager", "scheduler"):
                self._kubeadm(programs, *self._phase(kind, self._kubeconfigs, settings))
            self._publish()

    def node_kubeconfig(self, programs: Programs, node: str, folder: Path) -> Path:
        """Return the kubelet's kubeconfig for a node, made on first use."""
        path = folder / "kubelet.conf"
        if not path.exists():
            settings = self._write_settings(f"kubeadm-{node}.yaml", node=node)
            self._kubeadm(programs, *self._phase("kubelet", folder, settings))
        return path

    def proxy_kubeconfig(self, programs: Programs) -> Path:
        """Return kube-proxy's kubeconfig, made on first use."""
        path = self._kubeconfigs / "kube-proxy.conf"
        if not path.exists():
            text = self._kubeadm(
                programs,
                *("kubeconfig", "user", "--client-name=system:kube-proxy"),
                f"--config={self._folder / 'kubeadm.yaml'}",
            )
            path.write_text(text)
            path.chmod(0o600)
        return path

    @property
    def client_ca(self) -> Path:
        """Certificate authority of the instance's clients."""
        return self._pki / "ca.crt"

    def _write_settings(self, name: str, *, node: str) -> Path:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(config.kubeadm(self._plan, self._instance.version, self._pki, node=node))
        return path

    @staticmethod
    def _phase(kind: str, folder: Path, settings: Path) -> list[str]:
        return [
            *("init", "phase", "kubeconfig", kind),
            f"--kubeconfig-dir={folder}",
            f"--config={settings}",
        ]

    def _kubeadm(self, programs: Programs, *words: str) -> str:
        return run(
            [*network.entering(self._plan.namespace), programs.find("kubeadm"), *words],
            purpose="make the cluster's certificates",
            env=programs.environment,
        )

    def _publish(self) -> None:
        """Copy the administrator's kubeconfig, readable for whoever called by sudo."""
        temporary = self.kubeconfig.with_suffix(".partial")
        temporary.touch(mode=0o600)
        temporary.write_text((self._kubeconfigs / "admin.conf").read_text())
        if "SUDO_UID" in os.environ:
            os.chown(temporary, int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"]))
        temporary.replace(self.kubeconfig)

    def start(self, programs: Programs, components: tuple[str, ...] = COMPONENTS) -> None:
        """Start those of ``components`` that do not run, without waiting until they serve."""
        here = {process.program for process in self._processes()}
        for component in components:
            if component not in here:
                daemons.start(
                    [
                        *network.entering(self._plan.namespace),
                        programs.find(component),
                        *self._arguments(component),
                    ],
                    log=self.log(component),
                    environment=programs.environment,
                )
        # Each needs a moment to appear under its own name.
        processes.wait_until(lambda: set(components) <= self.running(), _APPEAR_SECONDS)

    def _arguments(self, component: str) -> list[str]:
        conf = self._kubeconfigs
        arguments: dict[str, Callable[[], list[str]]] = {
            "etcd": lambda: config.etcd(self._folder / "etcd"),
            "kube-apiserver": lambda: config.api_server(self._plan, self._pki),
            "kube-controller-manager": lambda: config.controller_manager(
                self._plan, self._pki, conf / "controller-manager.conf"
            ),
            "kube-scheduler": lambda: config.scheduler(conf / "scheduler.conf"),
        }
        return arguments[component]()

    def end(self, component: str) -> None:
        """End one component and wait for its end."""
        processes.end(
            self._is(component),
            patience_seconds=_PATIENCE_SECONDS.get(component, 2.0),
            what=component,
        )

    def running(self) -> set[str]:
        """Return the components that run."""
        return {process.program for process in self._processes()} & set(COMPONENTS)

    def _processes(self) -> list[Process]:
        inode = network.namespace_inode(self._plan.namespace)
        return [process for process in processes.running() if process.net_namespace == inode]

    def _is(self, component: str) -> Callable[[Process], bool]:
        inode = network.namespace_inode(self._plan.namespace)
        return lambda process: process.net_namespace == inode and process.program == component

    def is_ready(self) -> bool:
        """Ask the API server's ``/readyz``."""
        try:
            context = ssl.create_default_context(cafile=str(self.client_ca))
            opener = urllib.request.build_opener(
                urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
            )
            with opener.open(f"{self._plan.api_url}/readyz", timeout=patient(2.0)) as answer:
                return bool(answer.status == 200)  # noqa: PLR2004
        except (OSError, ssl.SSLError):
            return False

    def wait_ready(self) -> None:
        """Wait for the API server. Raises ``DaemonError`` with the log of what has ended."""
        needed = {"etcd", "kube-apiserver"}

        def settled() -> bool:
            return self.is_ready() or not needed <= self.running()

        if processes.wait_until(settled, _START_SECONDS) and self.is_ready():
            return
        ended = sorted(needed - self.running()) or ["kube-apiserver"]
        message = "\n".join(
            f"{name} is not ready, {self.log(name)} ends with:\n{daemons.tail(self.log(name))}"
            for name in ended
        )
        raise DaemonError(message)

    def wait_answering(self, programs: Programs) -> None:
        """Wait until the API server answers from etcd: it reports ready while it reconnects."""
        self.wait_ready()
        if not processes.wait_until(lambda: bool(self.ready_nodes(programs)), _START_SECONDS):
            log = self.log("kube-apiserver")
            message = f"the API server does not answer, {log} ends with:\n{daemons.tail(log)}"
            raise DaemonError(message)

    def bind_roles(self, programs: Programs) -> None:
        """Give kubeadm's groups their roles, as soon as the API server takes them."""
        failures: list[CommandError] = []

        def bound() -> bool:
            try:
                self.kubectl(
                    programs,
                    # Validation would fetch the whole API description first.
                    *("apply", "--validate=false", "-f", "-"),
                    kubeconfig=self._kubeconfigs / "super-admin.conf",
                    stdin=config.BINDINGS,
                )
            except CommandError as error:
                failures.append(error)
                return False
            return True

        if not processes.wait_until(bound, _START_SECONDS):
            raise failures[-1]

    def kubectl(
        self,
        programs: Programs,
        *words: str,
        kubeconfig: Path | None = None,
        stdin: str | None = None,
    ) -> str:
        """Run kubectl as the administrator and return what it prints."""
        return run(
            [programs.kubectl, f"--kubeconfig={kubeconfig or self.kubeconfig}", *words],
            purpose="ask the cluster",
            env=programs.environment,
            stdin=stdin,
        )

    def ready_nodes(self, programs: Programs) -> dict[str, bool]:
        """Return the registered nodes and whether each is Ready."""
        try:
            answer = json.loads(self.kubectl(programs, "get", "nodes", *_in_json()))
        except CommandError:
            return {}
        return {
            item["metadata"]["name"]: any(
                condition["type"] == "Ready" and condition["status"] == "True"
                for condition in item["status"].get("conditions", [])
            )
            for item in answer["items"]
        }

    def admits_pods(self, programs: Programs) -> bool:
        """Tell whether the default namespace has its service account, without which no Pod is."""
        words = ("get", "serviceaccount", "default", "--ignore-not-found", "--output=name")
        try:
            return bool(self.kubectl(programs, *words).strip())
        except CommandError:
            return False


def _in_json() -> tuple[str, str]:
    return "--output=json", f"--request-timeout={patient(_REQUEST_SECONDS):.0f}s"

"""kube-router as the enforcer of network policies on an embedded cluster, built from its Go module.

Its controller for policies is the one that k3s carries. It runs on each node beside kube-proxy and
writes rules of iptables and sets of addresses; the bridge plugin of the cluster goes on to connect
Pods. There is no way back: a cluster that had it is taken down.
"""

from functools import partial
from pathlib import Path
from typing import Final

from ci import gobuild, tools
from ci.cache import cache_dir
from ci.cluster import Cluster, daemons, network, processes
from ci.cluster.instance import registry
from ci.cluster.plan import NodePlan
from ci.gobuild import Recipe

VERSION: Final = "2.1.0"
_MODULE: Final = "github.com/cloudnativelabs/kube-router/v2"
_PROGRAM: Final = "kube-router"
_PACKAGES: Final = ("ipset", "libipset13")
_START_SECONDS: Final = 60.0
#: It says so once it has read what is in the cluster.
_STARTED: Final = "Starting network policy controller"


class EnforcerError(RuntimeError):
    """It does not run on a node; the message has the log's path."""


def build(cache: Path) -> Path:
    """Return the folder with the program ``kube-router``, built on first use."""
    return gobuild.build(recipe, name="kube-router", version=VERSION, cache=cache)


def recipe() -> Recipe:
    """Return how to build it."""
    return Recipe(
        name="kube-router",
        version=VERSION,
        go_mod=gobuild.requiring(_MODULE, VERSION, name="kube-router"),
        packages=(f"{_MODULE}/cmd/{_PROGRAM}",),
    )


def start(cluster: Cluster) -> None:
    """Enforce network policies on every node from soon on, until the node's end.

    Raises EnforcerError where the program does not come up.
    """
    instance = registry().read(cluster.name)
    if instance is None:
        raise LookupError(f"there is no cluster {cluster.name}")
    program = build(cache_dir()) / _PROGRAM
    tree = tools.debian_tree("firewall", _PACKAGES)
    libraries = next((tree / "usr/lib").glob("*/libipset.so.*")).parent
    environment = {
        "PATH": f"{tree / 'usr/sbin'}:{tree / 'sbin'}:/usr/sbin:/usr/bin:/sbin:/bin",
        "LD_LIBRARY_PATH": str(libraries),
    }
    for node in instance.plan.nodes(instance.nodes):
        if _runs(node):
            continue
        log = cluster.folder / "log" / f"{node.name}-kube-router.log"
        log.unlink(missing_ok=True)
        daemons.start(
            [
                *network.entering(node.namespace),
                program,
                f"--kubeconfig={cluster.kubeconfig}",
                f"--hostname-override={node.name}",
                f"--service-cluster-ip-range={instance.plan.services}",
                "--run-firewall=true",
                "--run-router=false",
                "--run-service-proxy=false",
                "--enable-cni=false",
                "--health-port=0",
            ],
            log=log,
            environment=environment,
        )
        if not processes.wait_until(partial(_serves, log), _START_SECONDS) or not _runs(node):
            message = f"kube-router does not start on {node.name}: {log} ends with:\n"
            raise EnforcerError(message + daemons.tail(log))


def _runs(node: NodePlan) -> bool:
    inode = network.namespace_inode(node.namespace)
    return any(
        one.net_namespace == inode and one.program == _PROGRAM for one in processes.running()
    )


def _serves(log: Path) -> bool:
    return _STARTED in log.read_text(errors="replace")

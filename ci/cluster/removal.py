"""Takes a cluster away, whatever state it is in, and what was made for all of them.

Its record may be damaged and half of its programs dead: everything is found by its name, in
namespaces, control groups, folders and an interface's alias.
"""

import shutil

from ci.cluster import cgroups, network, plan, processes
from ci.cluster.host import Footprint
from ci.cluster.instance import Registry
from ci.cluster.node import Node


def remove(name: str, registry: Registry) -> None:
    """Leave nothing of cluster ``name`` on the machine; nothing there is fine."""
    if has_traces(name, registry):
        with registry.locked_instance(name):
            _remove_cluster(name, registry)
    _forget_machine(name, registry)


def has_traces(name: str, registry: Registry) -> bool:
    """Tell whether anything of a cluster is on the machine."""
    here = plan.Plan(name=name, index=0)
    spaces = (here.namespace, *(one.namespace for one in here.nodes(plan.MAX_NODES)))
    return (
        registry.folder(name).exists()
        or any((network.NETNS / space).exists() for space in spaces)
        or cgroups.hierarchies().exists(here.cgroup)
    )


def footprint(registry: Registry) -> Footprint:
    """Return the record of what was made on the machine for all clusters."""
    return Footprint(registry.root / "made.json")


def _remove_cluster(name: str, registry: Registry) -> None:
    instance, folder = registry.read(name), registry.folder(name)
    # Without its record the number is lost, but names lead to everything that runs.
    here = instance.plan if instance else plan.Plan(name=name, index=0)
    for number in range(1, plan.MAX_NODES + 1):
        one = here.node(number)
        node = Node(here, one, folder / one.name, folder / "log")
        if node.has_traces():
            node.destroy()
    inode = network.namespace_inode(here.namespace)
    if inode is not None:
        # Killed, not asked: the API server would drain, and nothing of it is kept.
        processes.end(
            lambda process: process.net_namespace == inode,
            patience_seconds=0.0,
            what="the control plane",
        )
    network.delete_lan(here)
    cgroups.hierarchies().remove(here.cgroup)
    if folder.exists():
        shutil.rmtree(folder)


def _forget_machine(name: str, registry: Registry) -> None:
    """With the last instance gone, take back what was made for all of them."""
    root = registry.root
    if not root.is_dir():
        return
    with registry.locked():
        (root / f".{name}.lock").unlink(missing_ok=True)
        if registry.names():
            return
        footprint(registry).clear()
        for leftover in root.iterdir():
            leftover.unlink()
        root.rmdir()

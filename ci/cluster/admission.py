"""Whether a cluster can be brought up as somebody asks: a new one, or one that exists."""

from dataclasses import replace

from ci import kubernetes
from ci.cluster import plan
from ci.cluster.instance import Instance, Registry

_NODES = 2


class ClusterError(RuntimeError):
    """The cluster is not in a state for what was asked, or did not get there."""


def admit(
    registry: Registry,
    name: str,
    *,
    nodes: int | None,
    version: str | None,
    containerd: str | None,
) -> Instance:
    """Return the record to bring up, written down; absent values mean what is or the defaults.

    Raises ClusterError where the cluster that exists is another one.
    """
    instance = registry.read(name)
    if instance is None:
        return _new(registry, name, nodes=nodes, version=version, containerd=containerd)
    for what, has, asked in (
        ("Kubernetes", instance.version, version),
        ("containerd", instance.containerd or "of Debian", containerd),
    ):
        if asked not in (None, has):
            message = f"cluster {name} runs {what} {has}, not {asked}: take it down first"
            raise ClusterError(message)
    if nodes is None or nodes == instance.nodes:
        return instance
    if nodes < instance.nodes:
        message = (
            f"cluster {name} has {instance.nodes} nodes; a node is switched off by "
            f"`node stop`, removed only with the whole cluster"
        )
        raise ClusterError(message)
    instance.plan.nodes(nodes)
    grown = replace(instance, nodes=nodes)
    registry.write(grown)
    return grown


def _new(
    registry: Registry,
    name: str,
    *,
    nodes: int | None,
    version: str | None,
    containerd: str | None,
) -> Instance:
    folder = registry.folder(name)
    if folder.exists():
        message = f"{folder} is damaged: take cluster {name} down first"
        raise ClusterError(message)
    wanted = version or kubernetes.DEFAULT_VERSION
    kubernetes.minor(wanted)
    count = nodes if nodes is not None else _NODES
    plan.Plan(name=name, index=0).nodes(count)
    return registry.allocate(name, version=wanted, nodes=count, containerd=containerd)

"""Network namespaces, bridge and routes of an instance.

Bridge and control plane have a namespace of their own. So the machine's firewall (Docker's
FORWARD policy, firewalld, ufw) never sees traffic between nodes, its IP forwarding stays as it
is, and ports of the control plane collide with nobody's. There is no route to the outside: what
runs in the cluster reaches the cluster and nothing else.
"""

import json
from ipaddress import IPv4Network
from pathlib import Path

from ci.cluster.plan import NodePlan, Plan
from ci.command import CommandError, run

NETNS = Path("/run/netns")
_BRIDGE = "br0"


def namespace_inode(name: str) -> int | None:
    """Return the inode that identifies a named network namespace, None if there is none."""
    try:
        status = (NETNS / name).stat()
    except OSError:
        return None
    # After an unclean end the name can be left as a plain file without a namespace behind it.
    return status.st_ino if status.st_dev != NETNS.stat().st_dev else None


def _ip(*words: object, namespace: str | None = None) -> str:
    where = ["-n", namespace] if namespace else []
    argv = ["ip", *where, *(str(word) for word in words)]
    return run(argv, purpose=f"set up the network ({' '.join(argv[1:])})")


def _ensure_namespace(name: str) -> bool:
    if namespace_inode(name) is not None:
        return False
    (NETNS / name).unlink(missing_ok=True)
    _ip("netns", "add", name)
    _ip("link", "set", "lo", "up", namespace=name)
    return True


def _sysctl(namespace: str, key: str, value: str) -> None:
    run(
        [*entering(namespace), "sysctl", "-q", "-w", f"{key}={value}"],
        purpose=f"set {key} in {namespace}",
    )


def entering(namespace: str) -> list[str]:
    """Return the start of a command line that runs the rest in a network namespace.

    Not ``ip netns exec``: that also remounts /sys, which hides the cgroup mounts.
    """
    return ["nsenter", f"--net={NETNS / namespace}", "--"]


def _links(namespace: str | None = None) -> set[str]:
    answer = json.loads(_ip("-j", "link", "show", namespace=namespace) or "[]")
    return {entry["ifname"] for entry in answer}


def create_lan(plan: Plan) -> None:
    """Create bridge, the host's interface into it and the host's route, where missing."""
    space = plan.namespace
    if _ensure_namespace(space) or _BRIDGE not in _links(space):
        _ip("link", "add", _BRIDGE, "type", "bridge", namespace=space)
        _ip(
            *("addr", "add", f"{plan.api_address}/{plan.lan.prefixlen}", "dev", _BRIDGE),
            namespace=space,
        )
        _ip("link", "set", _BRIDGE, "up", namespace=space)
        _sysctl(space, "net.ipv4.ip_forward", "1")
    if plan.host_interface not in _links():
        _ip(
            *("link", "add", plan.host_interface, "type", "veth"),
            *("peer", "name", "host", "netns", space),
        )
    _ip("link", "set", plan.host_interface, "alias", space)
    _ip("link", "set", "host", "master", _BRIDGE, "up", namespace=space)
    _ip(
        *("addr", "replace", f"{plan.host_address}/{plan.lan.prefixlen}"),
        *("dev", plan.host_interface),
    )
    _ip("link", "set", plan.host_interface, "up")
    for network in (plan.network, plan.services):
        _ip("route", "replace", network, "via", plan.api_address, "dev", plan.host_interface)


def create_node(plan: Plan, node: NodePlan) -> None:
    """Create a node's namespace, its link to the bridge and the route to its Pods."""
    if _ensure_namespace(node.namespace) or "eth0" not in _links(node.namespace):
        if node.uplink in _links(plan.namespace):
            _ip("link", "del", node.uplink, namespace=plan.namespace)
        _ip(
            *("link", "add", node.uplink, "type", "veth"),
            *("peer", "name", "eth0", "netns", node.namespace),
            namespace=plan.namespace,
        )
        _ip(
            *("addr", "add", f"{node.address}/{plan.lan.prefixlen}", "dev", "eth0"),
            namespace=node.namespace,
        )
        _ip("link", "set", "eth0", "up", namespace=node.namespace)
        _ip("route", "add", "default", "via", plan.api_address, namespace=node.namespace)
        _sysctl(node.namespace, "net.ipv4.ip_forward", "1")
    _ip("link", "set", node.uplink, "master", _BRIDGE, "up", namespace=plan.namespace)
    _ip("route", "replace", node.pod_network, "via", node.address, namespace=plan.namespace)


def route_between(node: NodePlan, others: tuple[NodePlan, ...]) -> None:
    """Tell a node the way to the Pods of the others, straight over the bridge."""
    for other in others:
        _ip("route", "replace", other.pod_network, "via", other.address, namespace=node.namespace)


def delete_namespace(name: str) -> None:
    """Delete a namespace; its interfaces and their peers go with it."""
    if namespace_inode(name) is not None:
        _ip("netns", "del", name)
    elif (NETNS / name).exists():
        (NETNS / name).unlink()


def delete_lan(plan: Plan) -> None:
    """Delete the instance's namespace, the host's interface and thereby its routes.

    The interface is found by its alias: the instance's number may be lost. The kernel would
    remove it together with its peer, but some time after the namespace.
    """
    delete_namespace(plan.namespace)
    for entry in json.loads(_ip("-j", "link", "show") or "[]"):
        if entry.get("ifalias") == plan.namespace:
            try:
                _ip("link", "del", entry["ifname"])
            except CommandError:
                if entry["ifname"] in _links():
                    raise


def in_use(network: IPv4Network) -> str | None:
    """Return a route of the machine that overlaps ``network``, None if there is none."""
    for entry in json.loads(_ip("-j", "-4", "route", "show", "table", "all") or "[]"):
        target = entry.get("dst", "default")
        if target != "default" and network.overlaps(IPv4Network(target, strict=False)):
            return f"{target} dev {entry.get('dev', entry.get('type', 'unknown'))}"
    return None

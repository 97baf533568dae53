"""Which nodes share a limit: by resource name, by rack or zone, and all together. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from thermal.objects import NodeRecord

_RESOURCE: Final = "resource"


class Group(NamedTuple):
    """A name for some nodes: ``kind`` is "cluster", "resource", or the key of a label."""

    kind: str
    name: str

    @property
    def is_domain(self) -> bool:
        """Whether a label says that its nodes share a rack, a zone or a room."""
        return self.kind not in ("cluster", _RESOURCE)


#: All nodes with an NPU.
CLUSTER: Final = Group("cluster", "")

Groups = Mapping[Group, frozenset[str]]


def grouped(
    nodes: Mapping[str, NodeRecord],
    managed: Collection[str],
    *,
    resources: Collection[str],
    domain_labels: Sequence[str],
) -> Groups:
    """Return the nodes with an NPU by group.

    A node counts when its status lists one of ``resources``, also with none of it free or healthy,
    or when it is ``managed``. It is read from the Nodes and not from temperatures, so that a guard
    that has just started counts like the one before it. Managed nodes without such a resource share
    the group of the empty resource name.

    Where a driver was replaced the kubelet goes on listing the resource of the old one, with no
    device at all: that is not the group of the node as long as it has devices of another resource.
    """
    found: dict[Group, set[str]] = {}
    for name, node in nodes.items():
        offered = _offered(node, resources)
        if name not in managed and (not offered or node.reserved_for_control_plane):
            continue
        of_node = [CLUSTER, *(Group(_RESOURCE, resource) for resource in offered or [""])]
        of_node += [Group(key, node.labels[key]) for key in domain_labels if key in node.labels]
        for group in of_node:
            found.setdefault(group, set()).add(name)
    return {group: frozenset(names) for group, names in found.items()}


def _offered(node: NodeRecord, resources: Collection[str]) -> list[str]:
    listed = [name for name in resources if name in node.allocatable or name in node.capacity]
    served = [name for name in listed if node.capacity.get(name) or node.allocatable.get(name)]
    return served or listed


def of_nodes(groups: Groups) -> dict[str, list[Group]]:
    """Return the groups of each node."""
    found: dict[str, list[Group]] = {}
    for group, names in groups.items():
        for name in names:
            found.setdefault(name, []).append(group)
    return found

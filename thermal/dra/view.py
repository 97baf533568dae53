"""The cluster as the judging loop sees it where nodes serve claims.

On such a node the kubelet counts no NPUs and the guard writes no taints; both are in other objects.
Put on a copy of the Node they look like everywhere else, so that budgets, restraint and the
adoption by a new leader need not know the difference.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from thermal.dra.rules import RuleRecord, marks_of
from thermal.dra.slices import SliceRecord
from thermal.objects import NodeRecord, PodRecord
from thermal.watch import Cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Caches:
    """What is watched for Dynamic Resource Allocation."""

    plugins: Cache[PodRecord]
    slices: Cache[SliceRecord]
    rules: Cache[RuleRecord]

    @property
    def synced(self) -> bool:
        """Whether all were read once."""
        return self.plugins.synced and self.slices.synced and self.rules.synced


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    node: NodeRecord
    source: tuple[tuple[SliceRecord, ...], tuple[RuleRecord, ...]]
    seen: NodeRecord


@dataclass(slots=True)
class Overlay:
    """Puts published devices on copies of Nodes; the same input gives the same object again."""

    _made: dict[str, _Made] = field(default_factory=dict)

    def __call__(
        self,
        nodes: Mapping[str, NodeRecord],
        slices: Iterable[SliceRecord],
        rules: Iterable[RuleRecord] = (),
    ) -> dict[str, NodeRecord]:
        """Return the Nodes with what slices offer as resources, and rules as taints."""
        published: dict[str, tuple[SliceRecord, ...]] = {}
        for item in slices:
            published[item.node] = (*published.get(item.node, ()), item)
        ruled: dict[str, tuple[RuleRecord, ...]] = {}
        for record in rules:
            ruled[record.rule.node] = (*ruled.get(record.rule.node, ()), record)
        result = dict(nodes)
        made: dict[str, _Made] = {}
        for name in published.keys() | ruled.keys():
            node = nodes.get(name)
            if node is None:
                continue
            source = (published.get(name, ()), ruled.get(name, ()))
            last = self._made.get(name)
            if last is None or last.node is not node or last.source != source:
                seen = marks_of(source[1], _with_devices(node, source[0]))
                last = _Made(node=node, source=source, seen=seen)
            made[name] = last
            result[name] = last.seen
        self._made = made
        return result


def _with_devices(node: NodeRecord, slices: Iterable[SliceRecord]) -> NodeRecord:
    allocatable, capacity = dict(node.allocatable), dict(node.capacity)
    for item in slices:
        for (resource, state), count in item.capacity.items():
            if not resource:
                continue
            capacity[resource] = capacity.get(resource, 0) + count
            if state == "available":
                allocatable[resource] = allocatable.get(resource, 0) + count
    return replace(node, allocatable=allocatable, capacity=capacity)

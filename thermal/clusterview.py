"""The cluster as the loops see it: what is watched, from memory."""

from thermal import taints
from thermal.dra.rules import RuleRecord
from thermal.dra.slices import SliceRecord
from thermal.dra.view import Caches, Overlay
from thermal.objects import NodeRecord, PodRecord
from thermal.watch import Cache


class WatchedCluster:
    """All of it, with what slices and rules say put on copies of the Nodes.

    ``claims`` is None where no node hands out devices by Dynamic Resource Allocation.
    """

    def __init__(
        self, nodes: Cache[NodeRecord], pods: Cache[PodRecord], claims: Caches | None
    ) -> None:
        self._nodes = nodes
        self._pods = pods
        self._claims = claims
        self._overlay = Overlay()

    @property
    def synced(self) -> bool:
        """Whether all were read once."""
        claims = self._claims is None or self._claims.synced
        return self._nodes.synced and self._pods.synced and claims

    def nodes(self) -> dict[str, NodeRecord]:
        """Return all Nodes by name."""
        nodes = self._nodes.records()
        if self._claims is None:
            return nodes
        return self._overlay(nodes, self.slices().values(), self.rules().values())

    def claims(self) -> frozenset[str]:
        """Return the nodes that hand devices out by claims.

        Those are the nodes with a plugin of that mode, also while a kubelet that restarted has
        wiped their slices, and those that still have slices or rules and were not moved away.
        """
        served = {pod.node for pod in self.plugins().values()}
        published = {item.node for item in self.slices().values()}
        ruled = {item.rule.node for item in self.rules().values()}
        return frozenset(served | published | ruled) - self.counted()

    def counted(self) -> frozenset[str]:
        """Return the nodes whose kubelet counts devices: a device plugin runs there, and alone.

        While a node moves both kinds run there for a moment, and the old one may still serve.
        """
        running = {False: set[str](), True: set[str]()}
        for pod in self._plugins().values():
            if pod.running:
                running[pod.claims].add(pod.node)
        return frozenset(running[False] - running[True])

    def other_plugins(self) -> frozenset[str]:
        """Return the nodes with a device plugin, also one that starts or ends."""
        return frozenset(pod.node for pod in self._plugins().values() if not pod.claims)

    def tainted(self) -> frozenset[str]:
        """Return the Nodes with a taint of ours, whatever their devices have."""
        return frozenset(name for name, node in self._nodes.records().items() if _tainted(node))

    def plain(self) -> "PlainCluster":
        """Return the cluster as it is, Nodes with nothing put on them."""
        return PlainCluster(self._nodes, self)

    def pods(self) -> dict[str, PodRecord]:
        """Return the exporter Pods by name."""
        return self._pods.records()

    def plugins(self) -> dict[str, PodRecord]:
        """Return the plugin Pods that serve claims."""
        return {name: pod for name, pod in self._plugins().items() if pod.claims}

    def slices(self) -> dict[str, SliceRecord]:
        """Return the ResourceSlices that guards of this release wrote."""
        return self._claims.slices.records() if self._claims else {}

    def rules(self) -> dict[str, RuleRecord]:
        """Return the DeviceTaintRules that guards of this release wrote."""
        return self._claims.rules.records() if self._claims else {}

    def _plugins(self) -> dict[str, PodRecord]:
        return self._claims.plugins.records() if self._claims else {}


class PlainCluster:
    """The cluster for the loop that writes Nodes: as they are."""

    def __init__(self, nodes: Cache[NodeRecord], whole: WatchedCluster) -> None:
        self._nodes = nodes
        self._whole = whole

    @property
    def synced(self) -> bool:
        """Whether all were read once."""
        return self._whole.synced

    def nodes(self) -> dict[str, NodeRecord]:
        """Return all Nodes by name."""
        return self._nodes.records()

    def pods(self) -> dict[str, PodRecord]:
        """Return the exporter Pods by name."""
        return self._whole.pods()

    def claims(self) -> frozenset[str]:
        """Return the nodes whose devices are tainted in place of the Node.

        Hot devices of a node that moves must not be free for a moment. So its Node counts while a
        device plugin is there at all, and keeps a taint until rules are there in its place.
        """
        ruled = {item.rule.node for item in self._whole.rules().values()}
        return self._whole.claims() - self._whole.other_plugins() - (self._whole.tainted() - ruled)


def _tainted(node: NodeRecord) -> bool:
    return taints.applied_effect(node.taints) is not None

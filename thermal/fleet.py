"""All managed nodes: whom to ask now, and what may be published.

A node is managed while an exporter Pod on it reports an NPU, and as long as something of ours is
written on it. Used by one thread; time is passed in.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from npu.heat import Transition
from npu.thresholds import Settings, Thresholds
from thermal import taints
from thermal.names import ANNOTATION_STATE
from thermal.objects import NodeRecord, PodRecord
from thermal.policy import Decision, NodeHeat, Policy, decide
from thermal.readings import DeviceSample
from thermal.source import Failure, Result, Target
from thermal.watched import Watched, adopt

#: From this size on, first scrapes are spread over an interval.
_SPREAD_FROM_NODES = 100
#: The judging loop turns once a second; a node that is due before the middle of the next turn is
#: due now.
_TURN_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """A managed node as last judged; ``decision`` is None while nothing may be published."""

    node: str
    decision: Decision | None
    devices: tuple[DeviceSample, ...]
    limits: Thresholds
    since: str
    sample_age_seconds: float
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTransition:
    """A transition of one device of a node."""

    node: str
    device: str
    transition: Transition


class Fleet:
    """The managed nodes."""

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        *,
        interval_seconds: float = 5.0,
        warm_interval_seconds: float = 2.0,
        wall: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._interval = interval_seconds
        self._warm_interval = warm_interval_seconds
        self._wall = wall
        self._nodes: dict[str, Watched] = {}
        self._observed: set[str] = set()
        self._statuses: dict[str, NodeStatus] = {}

    @property
    def undriven(self) -> dict[str, tuple[str, ...]]:
        """Nodes that have NPU hardware and no driver for it, and why."""
        return {name: node.hardware for name, node in self._nodes.items() if node.hardware}

    def due(
        self, nodes: Mapping[str, NodeRecord], pods: Mapping[str, PodRecord], now: float
    ) -> tuple[list[Target], dict[str, Result]]:
        """Return whom to ask now, and results that are known without asking.

        Nodes that no longer exist, and nodes without exporter that never were managed, are dropped.
        """
        exporters = _exporters(pods)
        for name in [name for name in self._nodes if name not in nodes]:
            del self._nodes[name]
            self._statuses.pop(name, None)
        for name, node in nodes.items():
            if name not in self._nodes and (name in exporters or is_ours(node)):
                self._nodes[name] = adopt(
                    node, self._settings, now, due_at=now + self._spread(name, len(nodes))
                )
        targets: list[Target] = []
        known: dict[str, Result] = {}
        for name, watched in self._nodes.items():
            if watched.due_at > now + _TURN_SECONDS / 2:
                continue
            pod = exporters.get(name)
            if pod is None or pod.address is None or not pod.running:
                known[name] = Failure(reason="no_exporter")
            else:
                targets.append(Target(node=name, address=pod.address, warm=watched.warm))
        return targets, known

    def observe(self, results: Mapping[str, Result], now: float) -> list[NodeTransition]:
        """Advance the machines of the nodes that were asked; return what changed."""
        changes: list[NodeTransition] = []
        for name, result in results.items():
            watched = self._nodes.get(name)
            if watched is None:
                continue
            self._observed.add(name)
            moved = watched.observe(result, now, forget_seconds=self._policy.forget_seconds)
            changes += [
                NodeTransition(node=name, device=device, transition=transition)
                for device, transition in moved
            ]
            watched.due_at = now + (self._warm_interval if watched.warm else self._interval)
        return changes

    def judge(
        self, nodes: Mapping[str, NodeRecord], pods: Mapping[str, PodRecord], now: float
    ) -> dict[str, NodeStatus]:
        """Return the status of every managed node that has or had an NPU.

        Only nodes observed since the last call are judged again; all others keep the very same
        status, so that a large fleet costs what changes in it.
        """
        scheduled = {pod.node for pod in pods.values() if pod.node}
        for name in self._observed:
            watched, node = self._nodes.get(name), nodes.get(name)
            if watched is None or node is None:
                continue
            status = self._judge_node(node, watched, now, scheduled=name in scheduled)
            if status is None:
                self._statuses.pop(name, None)
            else:
                self._statuses[name] = status
        self._observed.clear()
        return dict(self._statuses)

    def _spread(self, name: str, nodes: int) -> float:
        """Return by how many seconds the first scrape of a node of a large fleet is put off."""
        if nodes <= _SPREAD_FROM_NODES:
            return 0.0
        return self._interval * (zlib.crc32(name.encode()) % 1000) / 1000

    def _judge_node(
        self, node: NodeRecord, watched: Watched, now: float, *, scheduled: bool
    ) -> NodeStatus | None:
        if scheduled:
            watched.unscheduled_since = None
        elif watched.unscheduled_since is None:
            watched.unscheduled_since = now
        since = watched.unscheduled_since
        devices = watched.heats(now)
        decision = decide(
            NodeHeat(
                node=node.name,
                devices=devices,
                settled=watched.settled(now, lost_seconds=self._policy.lost_seconds),
                ready=node.ready,
                unscheduled_seconds=None if since is None else now - since,
            ),
            self._policy,
        )
        if decision is not None and decision.forget and not is_ours(node):
            del self._nodes[node.name]
            return None
        if not devices and decision is None:
            return None
        if decision is not None and decision.state is not watched.state:
            watched.state, watched.since = decision.state, self._wall()
        return NodeStatus(
            node=node.name,
            decision=decision,
            devices=tuple(watched.samples.values()),
            limits=watched.limits,
            since=watched.since,
            sample_age_seconds=max(
                (device.missing_seconds for device in devices), default=now - watched.known_at
            ),
            problem=watched.problem,
        )


def _exporters(pods: Mapping[str, PodRecord]) -> dict[str, PodRecord]:
    """Return one exporter Pod per node, the running one where an old one is still ending."""
    chosen: dict[str, PodRecord] = {}
    for pod in pods.values():
        if pod.node and (pod.node not in chosen or pod.running):
            chosen[pod.node] = pod
    return chosen


def is_ours(node: NodeRecord) -> bool:
    """Tell whether something of ours is written on a node, labels aside."""
    return (
        ANNOTATION_STATE in node.annotations
        or node.condition is not None
        or taints.applied_effect(node.taints) is not None
    )

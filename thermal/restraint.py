"""Budget, storm brake and the lonely node, applied to the decisions of the whole fleet.

One of these lives as long as a replica leads. It reads the Nodes, where the state is, and remembers
only what is not written yet and when nodes became hot.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from npu.heat import OVERHEATED
from thermal import budget, storm, taints
from thermal.actions import Evict, Expel, Release, StopNewWork
from thermal.budget import Budget
from thermal.groups import CLUSTER, Group, grouped
from thermal.objects import NodeRecord
from thermal.policy import Decision, held_back
from thermal.storm import Brake, Storm


@dataclass(frozen=True, slots=True, kw_only=True)
class Restrained:
    """What holds decisions back now, for people and metrics."""

    limits: Mapping[Group, int] = field(default_factory=dict)
    used: Mapping[Group, int] = field(default_factory=dict)
    storms: frozenset[Group] = frozenset()
    watched: frozenset[Group] = frozenset()


class FleetRestraint:
    """A Restraint over all decisions; ``now`` is monotonic. Used by one thread.

    ``closes`` is False where the configured taint does not close nodes: there is nothing to limit.
    """

    def __init__(
        self,
        *,
        budget: Budget,
        storm: Storm,
        resources: Sequence[str],
        closes: bool,
        nodes: Callable[[], Mapping[str, NodeRecord]],
        monotonic: Callable[[], float],
    ) -> None:
        self._budget = budget
        self._storm = storm
        self._resources = tuple(resources)
        self._closes = closes
        self._nodes = nodes
        self._monotonic = monotonic
        self._granted: frozenset[str] = frozenset()
        self._brake = Brake()
        self.report = Restrained()

    def __call__(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        """Return the decisions, some of them weaker; those that release stay as they are."""
        nodes = self._nodes()
        if alone(nodes):
            self._granted, self._brake, self.report = frozenset(), Brake(), Restrained()
            return [_left_open(decision) for decision in decisions]
        groups = grouped(
            nodes,
            {decision.node for decision in decisions},
            resources=self._resources,
            domain_labels=self._budget.domain_labels,
        )
        rooms = {g: names for g, names in groups.items() if g == CLUSTER or g.is_domain}
        hot = {decision.node for decision in decisions if _is_hot(decision)}
        self._brake = storm.observe(self._brake, hot, rooms, self._monotonic(), self._storm)
        stormy = {node for group in self._brake.storms for node in rooms[group]}
        result = [
            storm.frozen(decision)
            if decision.node in stormy and not budget.is_emergency(decision)
            else decision
            for decision in decisions
        ]
        limits = budget.limits_of(groups, self._budget) if self._closes else {}
        overruled = {name for name, node in nodes.items() if node.override is not None}
        candidates = [
            decision
            for decision in result
            if decision.stop is not None and decision.node not in overruled
        ]
        wanted = {decision.node for decision in candidates}
        closed = {
            name
            for name, node in nodes.items()
            if taints.applied_effect(node.taints) == "NoSchedule"
        }
        granted = budget.grant(
            candidates, groups, limits, holders=closed | (self._granted & wanted)
        )
        self._granted = granted.nodes
        self.report = Restrained(
            limits=limits,
            used=granted.used if self._closes else {},
            storms=self._brake.storms,
            watched=frozenset(rooms),
        )
        return [
            budget.softened(decision) if decision.node in wanted - granted.nodes else decision
            for decision in result
        ]


def alone(nodes: Mapping[str, NodeRecord]) -> bool:
    """Tell whether ordinary Pods have one node at most.

    Closing it would stop everything and cool nothing: what runs there can go nowhere else.
    """
    return sum(not node.reserved_for_control_plane for node in nodes.values()) <= 1


def _left_open(decision: Decision) -> Decision:
    """Return the decision without what needs another node."""
    needing = StopNewWork | Evict | Expel
    if not any(isinstance(action, needing) for action in decision.actions):
        return decision
    kept = tuple(action for action in decision.actions if not isinstance(action, needing))
    return held_back(decision, (*kept, Release()), "single_node")


def _is_hot(decision: Decision) -> bool:
    return any(device.known in OVERHEATED for device in decision.devices)

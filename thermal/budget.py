"""How many nodes may be closed at a time, and which. Pure.

Closing nodes moves their work to the others, and a taint stops more than NPU work. So of all hot
nodes only the hottest are closed, within a share of the nodes of each resource and of each rack or
zone; the others are only avoided. Emergencies are always closed, and use the budget up first.
Opening a node is never a matter of budget.

A node keeps its place in the budget until another one is 5 °C hotter or in a worse state: two nodes
of nearly the same temperature must not take turns. A place is given only when it is free on the
Nodes themselves, so that the limit also holds while writes are under way.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from npu.heat import Heat, severity
from thermal.actions import Action, Expel, StopNewWork
from thermal.groups import CLUSTER, Group, Groups, of_nodes
from thermal.policy import Decision, held_back

_KEEPS_PLACE_CELSIUS = 5.0


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Shares of nodes that may be closed at a time; they are rounded up, so one always may.

    ``nodes_ratio`` is of the nodes with a resource, ``domain_ratio`` of those with the same value
    of one of ``domain_labels``.
    """

    nodes_ratio: float = 0.2
    domain_ratio: float = 0.5
    domain_labels: tuple[str, ...] = ("topology.kubernetes.io/zone",)

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        for name, value in (("nodesRatio", self.nodes_ratio), ("domainRatio", self.domain_ratio)):
            if not 0 < value <= 1:
                raise ValueError(f"{name} must be above 0 and at most 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """Which nodes may be closed, and per group how many places there are and are taken."""

    nodes: frozenset[str]
    limits: Mapping[Group, int]
    used: Mapping[Group, int]


def limits_of(groups: Groups, budget: Budget) -> dict[Group, int]:
    """Return how many nodes of each group may be closed."""
    return {
        group: _share(len(names), budget.domain_ratio if group.is_domain else budget.nodes_ratio)
        for group, names in groups.items()
        if group != CLUSTER
    }


def grant(
    candidates: Sequence[Decision],
    groups: Groups,
    limits: Mapping[Group, int],
    *,
    holders: Collection[str],
) -> Granted:
    """Choose among nodes that should be closed.

    ``holders`` are nodes that are closed, or were granted a place that is not written yet.
    """
    membership = {
        node: [group for group in of_node if group in limits]
        for node, of_node in of_nodes(groups).items()
    }
    names = {decision.node for decision in candidates}
    ranked = sorted(candidates, key=lambda one: _rank(one, held=one.node in holders), reverse=True)

    def used_by(nodes: Collection[str]) -> Counter[Group]:
        return Counter(group for node in nodes for group in membership.get(node, ()))

    taken = used_by([node for node in holders if node not in names])
    chosen: list[Decision] = []
    for decision in ranked:
        of_node = membership.get(decision.node, [])
        if is_emergency(decision) or all(taken[group] < limits[group] for group in of_node):
            chosen.append(decision)
            taken.update(of_node)
    # Who lost his place still has it until his Node was written: nobody else gets it before that.
    taken = used_by(holders)
    granted: set[str] = set()
    for decision in chosen:
        of_node = membership.get(decision.node, [])
        if decision.node in holders:
            granted.add(decision.node)
        elif is_emergency(decision) or all(taken[group] < limits[group] for group in of_node):
            granted.add(decision.node)
            taken.update(of_node)
    return Granted(nodes=frozenset(granted), limits=dict(limits), used=taken)


def softened(decision: Decision) -> Decision:
    """Return the decision with its node avoided instead of closed."""

    def soft(action: Action) -> Action:
        return replace(action, soft=True) if isinstance(action, StopNewWork) else action

    kept = (soft(action) for action in decision.actions if not isinstance(action, Expel))
    return held_back(decision, tuple(kept), "budget")


def is_emergency(decision: Decision) -> bool:
    """Tell whether a node must be closed whatever the budget; lost data changes nothing."""
    return any(device.known is Heat.EMERGENCY for device in decision.devices)


def _rank(decision: Decision, *, held: bool) -> tuple[bool, int, float, bool, str]:
    worst = max((severity(device.known) for device in decision.devices), default=0)
    known = [device.celsius for device in decision.devices if device.celsius is not None]
    celsius = max(known, default=-math.inf) + (_KEEPS_PLACE_CELSIUS if held else 0.0)
    return is_emergency(decision), worst, celsius, held, decision.node


def _share(count: int, ratio: float) -> int:
    # 20 % of 5 is 1, also where 0.2 * 5 is a hair more.
    return max(1, math.ceil(count * ratio - 1e-9))

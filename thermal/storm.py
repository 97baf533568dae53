"""The storm brake: many nodes getting hot at once is a failed room, not many failed nodes. Pure.

Moving work then only heats the next node. The brake freezes evictions, nothing else: new work is
still kept away within the budget, marks are still taken back, and emergencies are still served. It
lets go by itself when few nodes have been hot for a while.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from thermal.actions import Evict, Expel
from thermal.groups import Group, Groups
from thermal.policy import Decision, held_back


class Storm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """When the brake is pulled and when it lets go; ratios are of the nodes of a group.

    ``minimum_nodes`` hot nodes are needed in any case: one of three is no storm.
    """

    hot_ratio: float = 0.3
    minimum_nodes: int = 3
    within_seconds: float = 300.0
    rearm_ratio: float = 0.15
    rearm_seconds: float = 600.0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not 0 < self.rearm_ratio < self.hot_ratio <= 1:
            raise ValueError("rearmRatio must be above 0 and below hotRatio, hotRatio at most 1")
        if self.minimum_nodes < 1:
            raise ValueError("minimumNodes must be at least 1")
        for name, value in (
            ("withinSeconds", self.within_seconds),
            ("rearmSeconds", self.rearm_seconds),
        ):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be a positive number of seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Brake:
    """Since when each hot node is hot, and for each group in a storm since when it is calm.

    Times are monotonic seconds; None means that the group is not calm.
    """

    hot_since: Mapping[str, float] = field(default_factory=dict)
    calm_since: Mapping[Group, float | None] = field(default_factory=dict)

    @property
    def storms(self) -> frozenset[Group]:
        """The groups whose evictions are frozen."""
        return frozenset(self.calm_since)


def observe(brake: Brake, hot: Collection[str], groups: Groups, now: float, storm: Storm) -> Brake:
    """Take one look at which nodes are hot; ``groups`` are the cluster and its domains.

    Nodes that are hot at the first look count as just having become so: a new leader does not know,
    and a brake pulled without need costs a few minutes.
    """
    since = {node: brake.hot_since.get(node, now) for node in hot}
    calm: dict[Group, float | None] = {}
    for group, names in groups.items():
        hot_here = names & since.keys()
        if group in brake.calm_since:
            began = brake.calm_since[group]
            if len(hot_here) < storm.rearm_ratio * len(names):
                began = now if began is None else began
                if now - began < storm.rearm_seconds:
                    calm[group] = began
            else:
                calm[group] = None
            continue
        recent = sum(now - since[node] <= storm.within_seconds for node in hot_here)
        if recent >= max(storm.minimum_nodes, storm.hot_ratio * len(names) - 1e-9):
            calm[group] = None
    return Brake(hot_since=since, calm_since=calm)


def frozen(decision: Decision) -> Decision:
    """Return the decision without what empties the node."""
    if not any(isinstance(action, Evict | Expel) for action in decision.actions):
        return decision
    kept = tuple(a for a in decision.actions if not isinstance(a, Evict | Expel))
    return held_back(decision, kept, "storm")

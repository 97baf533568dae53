"""Laws of fleet and Node writes that hold for every sequence of events."""

import math
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from npu.heat import Heat
from tests.unit.thermal.fleet_facts import RESOURCE, decision, nodes
from thermal import taints
from thermal.budget import Budget, is_emergency
from thermal.desired import Desired, node_patch
from thermal.names import OWN_TAINTS
from thermal.objects import NodeRecord
from thermal.restraint import FleetRestraint
from thermal.storm import Storm
from thermal.taints import HotTaint, Taint

COUNT = 10
STATES = st.sampled_from(
    [Heat.COOL, Heat.WARM, Heat.RECOVERING, Heat.HOT, Heat.HOT, Heat.CRITICAL, Heat.EMERGENCY]
)
ROUNDS = st.lists(
    st.tuples(
        st.lists(st.tuples(STATES, st.floats(70, 99)), min_size=COUNT, max_size=COUNT),
        st.sets(st.integers(0, COUNT - 1)),
        st.floats(0.5, 900),
    ),
    min_size=1,
    max_size=12,
)


class Fleet:
    """Ten nodes; which decisions are written at once and which later is for a test to say."""

    def __init__(self) -> None:
        self.nodes = nodes(COUNT)
        self.now = 0.0
        self.restraint = FleetRestraint(
            budget=Budget(),
            storm=Storm(),
            resources=(RESOURCE,),
            closes=True,
            nodes=lambda: self.nodes,
            monotonic=lambda: self.now,
        )

    def write(self, name: str, effect: str | None) -> None:
        """Give a node our taint, or none."""
        hot = None if effect is None else HotTaint(effect=effect)  # type: ignore[arg-type]
        merged = taints.merged(self.nodes[name].taints, hot)
        if merged is not None:
            self.nodes[name] = replace(self.nodes[name], taints=tuple(merged))


@given(ROUNDS)
@settings(max_examples=60, deadline=None)
def test_budget_is_kept_and_openings_are_never_held_back(
    rounds: Sequence[tuple[list[tuple[Heat, float]], set[int], float]],
) -> None:
    """Whatever gets hot, and however late the writes come: only an emergency goes beyond."""
    fleet = Fleet()
    limit = math.ceil(0.2 * COUNT)
    emergencies: set[str] = set()
    for heats, late, seconds in rounds:
        fleet.now += seconds
        wanted = [
            decision(f"n{index}", state, celsius) for index, (state, celsius) in enumerate(heats)
        ]
        emergencies = {one.node for one in wanted if is_emergency(one)} | {
            name
            for name in emergencies
            if taints.applied_effect(fleet.nodes[name].taints) == "NoSchedule"
        }
        result = fleet.restraint(wanted)
        for before, after in zip(wanted, result, strict=True):
            if before.stop is None:
                assert after == before, "an opening was changed"
            if is_emergency(before):
                assert after.stop is not None
                assert not after.stop.soft
        for index, after in enumerate(result):
            if index not in late:
                stop = after.stop
                effect = None
                if stop is not None:
                    effect = "PreferNoSchedule" if stop.soft else "NoSchedule"
                fleet.write(after.node, effect)
        closed = {
            name
            for name, node in fleet.nodes.items()
            if taints.applied_effect(node.taints) == "NoSchedule"
        }
        assert len(closed - emergencies) <= limit


FOREIGN = st.fixed_dictionaries(
    {"key": st.sampled_from(["a", "b/c", "node.kubernetes.io/not-ready"])},
    optional={
        "value": st.text("xyz", max_size=3),
        "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
        "timeAdded": st.just("2026-01-01T00:00:00Z"),
    },
)
OURS = st.none() | st.builds(
    HotTaint,
    effect=st.sampled_from(["NoSchedule", "PreferNoSchedule"]),
    value=st.none() | st.sampled_from(["75", "80", "85"]),
)
EVENTS = st.lists(
    st.tuples(OURS, st.booleans(), st.none() | st.lists(FOREIGN, max_size=4)), max_size=20
)


@given(EVENTS)
def test_foreign_taints_survive_every_interleaving(
    events: list[tuple[HotTaint | None, bool, list[Taint] | None]],
) -> None:
    """Between our read and our write another writer may replace the whole list: nothing is lost."""
    version, stored, foreign = 1, list[Taint](), list[Taint]()
    for hot, critical, replaced in events:
        for writes_between in (replaced, None):
            seen = NodeRecord(name="n", resource_version=str(version), taints=tuple(stored))
            desired = Desired(hot=hot, critical=critical and hot is not None)
            patch = node_patch(seen, desired)
            if writes_between is not None:
                own = [taint for taint in stored if taint["key"] in OWN_TAINTS]
                foreign = list(writes_between)
                stored, version = [*foreign[:1], *own, *foreign[1:]], version + 1
            if patch is not None and patch["metadata"]["resourceVersion"] == str(version):
                stored, version = list(patch["spec"]["taints"]), version + 1
            assert [taint for taint in stored if taint["key"] not in OWN_TAINTS] == foreign
        effect = None if hot is None else hot.effect
        assert taints.applied_effect(stored) == effect
        assert taints.expels(stored) == (critical and hot is not None)
        assert sum(taint["key"] in OWN_TAINTS for taint in stored) <= len(OWN_TAINTS)

"""What a look at the whole fleet takes away from decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from npu.heat import Heat
from tests.unit.thermal.fleet_facts import decision, node, nodes
from thermal.actions import Evict, Release, StopNewWork
from thermal.budget import Budget
from thermal.names import OVERRIDE
from thermal.objects import NodeRecord
from thermal.policy import Decision
from thermal.restraint import FleetRestraint
from thermal.storm import Storm


def restraint(records: Mapping[str, NodeRecord], *, closes: bool = True) -> FleetRestraint:
    return FleetRestraint(
        budget=Budget(),
        storm=Storm(),
        resources=["rockchip.com/npu"],
        closes=closes,
        nodes=lambda: records,
        monotonic=lambda: 0.0,
    )


def effects(decisions: Sequence[Decision]) -> dict[str, str]:
    return {
        one.node: "open" if one.stop is None else "soft" if one.stop.soft else "closed"
        for one in decisions
    }


def evicts(one: Decision) -> bool:
    return any(isinstance(action, Evict) for action in one.actions)


def test_two_nodes_close_the_first_hot_one() -> None:
    """The second one is only avoided, and its condition says why."""
    decided = restraint(nodes(2))([decision("n0", celsius=90.0), decision("n1")])

    assert effects(decided) == {"n0": "closed", "n1": "soft"}
    assert decided[1].held_back == ("budget",)
    assert decided[1].condition is not None
    assert "only avoided" in decided[1].condition.message


def test_a_lonely_node_stays_open() -> None:
    """Nothing can go elsewhere: neither taint nor eviction, whatever the heat."""
    decided = restraint(nodes(1))([decision("n0", Heat.EMERGENCY)])

    assert effects(decided) == {"n0": "open"}
    assert not evicts(decided[0])
    assert decided[0].held_back == ("single_node",)


def test_a_schedulable_server_is_a_node_like_others() -> None:
    """On k3s the server takes ordinary Pods; a reserved control plane is no place to go."""
    reserved = NodeRecord(
        name="c", taints=({"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},)
    )

    assert effects(restraint(nodes(2))([decision("n0")])) == {"n0": "closed"}
    lonely = {"n0": node("n0"), "c": reserved}
    assert effects(restraint(lonely)([decision("n0")])) == {"n0": "open"}


def test_a_storm_freezes_evictions_but_not_in_an_emergency() -> None:
    """Critical nodes keep their Pods; one that is about to power off does not."""
    decisions = [decision(f"n{i}", Heat.CRITICAL) for i in range(3)]
    decisions.append(decision("n3", Heat.EMERGENCY))

    decided = restraint(nodes(10))(decisions)

    assert [evicts(one) for one in decided] == [False, False, False, True]
    assert "storm" in decided[0].held_back


def test_an_overruled_node_takes_no_place() -> None:
    """Nothing is written on it, so another one may be closed."""
    records = nodes(5)
    records["n0"] = replace(records["n0"], labels={OVERRIDE: "observe"})

    decided = restraint(records)([decision("n0", celsius=95.0), decision("n1")])

    assert effects(decided) == {"n0": "closed", "n1": "closed"}


def test_nothing_is_limited_where_nothing_is_closed() -> None:
    """With PreferNoSchedule every hot node is avoided, and no budget is reported."""
    made = restraint(nodes(2), closes=False)

    assert effects(made([decision("n0"), decision("n1")])) == {"n0": "closed", "n1": "closed"}
    assert made.report.limits == {}


def test_the_report_counts() -> None:
    """Limits and places taken, for the metrics."""
    made = restraint(nodes(6, zone="a"))
    made([decision(f"n{i}") for i in range(3)])

    assert {
        tuple(group): (made.report.limits[group], made.report.used[group])
        for group in made.report.limits
    } == {
        ("resource", "rockchip.com/npu"): (2, 2),
        ("topology.kubernetes.io/zone", "a"): (3, 2),
    }


STATES = st.sampled_from([heat for heat in Heat if heat is not Heat.UNKNOWN])


@given(st.lists(st.lists(STATES, min_size=8, max_size=8), min_size=1, max_size=6))
def test_a_removal_is_never_held_back(turns: list[list[Heat]]) -> None:
    """What should be open is opened at once, in any storm and over any budget."""
    records = nodes(8, zone="a")
    made = restraint(records)
    for states in turns:
        decisions = [decision(f"n{i}", state) for i, state in enumerate(states)]
        decided = made(decisions)
        for before, after in zip(decisions, decided, strict=True):
            if before.stop is None:
                assert any(isinstance(action, Release) for action in after.actions)
                assert after.stop is None
        for one in decided:
            effect = {"closed": "NoSchedule", "soft": "PreferNoSchedule", "open": None}
            records[one.node] = node(one.node, zone="a", effect=effect[effects([one])[one.node]])
        over = {n for n, r in records.items() if r.taints and r.taints[0]["effect"] == "NoSchedule"}
        calm = {d.node for d in decided if d.state is not Heat.EMERGENCY}
        assert len(over & calm) <= 2


@given(st.lists(STATES, min_size=8, max_size=8))
def test_decisions_are_only_weakened(states: list[Heat]) -> None:
    """No action is added, and slots are limited as before."""
    decisions = [decision(f"n{i}", state) for i, state in enumerate(states)]
    for before, after in zip(decisions, restraint(nodes(8))(decisions), strict=True):
        if after is before:
            continue
        added = set(after.actions) - set(before.actions)
        assert all(isinstance(a, StopNewWork) and a.soft for a in added)
        assert after.held_back

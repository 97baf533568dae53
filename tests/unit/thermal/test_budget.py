"""Which of the hot nodes are closed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu.heat import Heat
from tests.unit.thermal.fleet_facts import ZONE, by_name, decision, node, nodes
from thermal.budget import Budget, grant, is_emergency, limits_of
from thermal.groups import CLUSTER, Group, Groups, grouped
from thermal.objects import NodeRecord
from thermal.policy import Decision

BUDGET = Budget()


def groups_of(records: dict[str, NodeRecord]) -> Groups:
    return grouped(records, (), resources=["rockchip.com/npu", "b/npu"], domain_labels=[ZONE])


def closed(
    decisions: list[Decision], records: dict[str, NodeRecord], holders: frozenset[str] = frozenset()
) -> frozenset[str]:
    groups = groups_of(records)
    return grant(decisions, groups, limits_of(groups, BUDGET), holders=holders).nodes


@pytest.mark.parametrize(
    ("count", "limit"), [(1, 1), (2, 1), (3, 1), (5, 1), (6, 2), (10, 2), (11, 3), (100, 20)]
)
def test_a_fifth_of_the_nodes_rounded_up(count: int, limit: int) -> None:
    """One node at least, so that small clusters still close the first hot one."""
    decisions = [decision(f"n{index}") for index in range(count)]

    assert len(closed(decisions, nodes(count))) == limit


def test_the_hottest_are_closed() -> None:
    """A worse state counts more than a temperature."""
    decisions = [
        decision("n0", celsius=89.0),
        decision("n1", celsius=83.0),
        decision("n2", Heat.CRITICAL, celsius=86.0),
    ]

    assert closed(decisions, nodes(10)) == {"n0", "n2"}


def test_resources_have_budgets_of_their_own() -> None:
    """Closing nodes of one kind leaves no less of the other."""
    records = {**nodes(5), **{f"m{i}": node(f"m{i}", resource="b/npu") for i in range(5)}}

    assert len(closed([decision(name) for name in records], records)) == 2


@pytest.mark.parametrize(
    ("capacity", "kinds"),
    [
        # The kubelet lists the resource of a driver that was replaced for ever, with no device.
        ({"rockchip.com/npu": 0, "b/npu": 1}, ["b/npu"]),
        # One that was withdrawn or broke is still a device.
        ({"rockchip.com/npu": 2, "b/npu": 1}, ["b/npu", "rockchip.com/npu"]),
        ({"rockchip.com/npu": 0}, ["rockchip.com/npu"]),
    ],
)
def test_a_replaced_driver_leaves_no_place_in_the_old_budget(
    capacity: dict[str, int], kinds: list[str]
) -> None:
    """A node belongs to the resources of which it has devices."""
    allocatable = dict.fromkeys(capacity, 0) | {name: 1 for name in capacity if name == "b/npu"}
    record = NodeRecord(name="n0", allocatable=allocatable, capacity=capacity)

    groups = groups_of({"n0": record})

    assert sorted(group.name for group in groups if group.kind == "resource") == kinds


def test_half_of_a_zone_at_most() -> None:
    """Two of four in one zone, although the cluster could spare four."""
    records = {**nodes(4, zone="a"), **{f"m{i}": node(f"m{i}", zone="b") for i in range(16)}}

    assert len(closed([decision(f"n{i}") for i in range(4)], records)) == 2


def test_emergencies_are_always_closed_and_use_the_budget() -> None:
    """No budget keeps a node open that is about to power off."""
    decisions = [decision(f"n{i}", Heat.EMERGENCY) for i in range(4)] + [decision("n4")]

    assert closed(decisions, nodes(5)) == {"n0", "n1", "n2", "n3"}


def test_nodes_of_nearly_one_temperature_do_not_take_turns() -> None:
    """A closed node stays so until another is 5 °C hotter; then it is opened first."""
    cooler, records = decision("n0", celsius=81.0), nodes(5)
    held = frozenset({"n0"})

    assert closed([cooler, decision("n1", celsius=85.0)], records, held) == {"n0"}
    # The place is free only when n0 has been written; until then nobody has it.
    hotter = [cooler, decision("n1", celsius=87.0)]
    assert closed(hotter, records, held) == frozenset()
    assert closed(hotter, records) == {"n1"}


def test_a_closed_node_that_nobody_judges_counts() -> None:
    """A new leader knows no temperatures yet, and closes no further nodes meanwhile."""
    assert closed([decision("n1")], nodes(5), frozenset({"n0"})) == frozenset()


def test_members_are_read_from_the_nodes() -> None:
    """Nodes without our resource do not enlarge the budget; control planes count when managed."""
    reserved = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    control_plane = replace(node("c"), taints=(reserved,))
    records = by_name(node("n0"), node("other", resource="x/gpu"), control_plane)

    def members(*managed: str) -> Groups:
        return grouped(records, managed, resources=["rockchip.com/npu"], domain_labels=[])

    assert members()[CLUSTER] == {"n0"}
    assert members("c")[Group("resource", "rockchip.com/npu")] == {"n0", "c"}
    assert members("other")[Group("resource", "")] == {"other"}


HEATS = st.sampled_from([Heat.HOT, Heat.CRITICAL, Heat.EMERGENCY])


@st.composite
def fleets(draw: st.DrawFn) -> tuple[list[Decision], dict[str, NodeRecord], frozenset[str]]:
    """Draw hot nodes among others, in zones, some of them closed within the limits."""
    count = draw(st.integers(min_value=1, max_value=25))
    records = {}
    for index in range(count):
        zone = draw(st.sampled_from([None, "a", "b", "c"]))
        resource = draw(st.sampled_from(["rockchip.com/npu", "b/npu"]))
        records[f"n{index}"] = node(f"n{index}", zone=zone, resource=resource)
    hot = draw(st.lists(st.sampled_from(sorted(records)), unique=True))
    celsius = st.floats(min_value=70, max_value=110)
    decisions = [decision(name, draw(HEATS), celsius=draw(celsius)) for name in hot]
    wanted = draw(st.lists(st.sampled_from(sorted(records)), unique=True))
    holders = closed([decision(name) for name in wanted], records)
    return decisions, records, holders


@given(fleets())
def test_the_budget_is_never_exceeded(
    fleet: tuple[list[Decision], dict[str, NodeRecord], frozenset[str]],
) -> None:
    """Closed nodes and granted ones together stay within every limit; only emergencies do not."""
    decisions, records, holders = fleet
    groups = groups_of(records)
    limits = limits_of(groups, BUDGET)
    granted = closed(decisions, records, holders)

    emergencies = {one.node for one in decisions if is_emergency(one)}
    assert emergencies <= granted
    for group, limit in limits.items():
        assert len(((granted | holders) - emergencies) & groups[group]) <= limit


@given(fleets(), st.floats(min_value=0, max_value=40))
def test_more_heat_never_opens_a_node(
    fleet: tuple[list[Decision], dict[str, NodeRecord], frozenset[str]], rise: float
) -> None:
    """A granted node that gets hotter, all else equal, is still granted."""
    decisions, records, holders = fleet
    granted = closed(decisions, records, holders)
    for index, one in enumerate(decisions):
        if one.node in granted:
            celsius = (one.devices[0].celsius or 0.0) + rise
            hotter = decision(one.node, one.state, celsius=celsius)
            changed = [*decisions[:index], hotter, *decisions[index + 1 :]]
            assert one.node in closed(changed, records, holders)


@given(fleets())
def test_writes_lead_to_rest(
    fleet: tuple[list[Decision], dict[str, NodeRecord], frozenset[str]],
) -> None:
    """Written out, the same decisions are granted the same nodes for ever: nothing flips."""
    decisions, records, holders = fleet
    candidates = {one.node for one in decisions}
    seen = []
    for _ in range(4):
        holders = closed(decisions, records, holders & candidates)
        seen.append(holders)

    assert seen[-1] == seen[-2]

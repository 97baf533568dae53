"""Names and addresses of instances."""

from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.cluster.plan import MAX_INSTANCES, MAX_NODES, Plan, PlanError

INSTANCES = st.integers(0, MAX_INSTANCES - 1)
NODES = st.integers(1, MAX_NODES)


@given(one=INSTANCES, other=INSTANCES)
def test_instances_share_no_address(one: int, other: int) -> None:
    """Two instances never overlap, and none leaves the range for tests (RFC 2544)."""
    a, b = Plan(name="a", index=one), Plan(name="b", index=other)
    mine, theirs = (a.network, a.services), (b.network, b.services)
    assert all(net.subnet_of(IPv4Network("198.18.0.0/15")) for net in mine)
    overlap = any(net.overlaps(against) for net in mine for against in theirs)
    assert overlap == (one == other)


@given(index=INSTANCES, one=NODES, other=NODES)
def test_nodes_share_no_address(index: int, one: int, other: int) -> None:
    """Within an instance LAN, Pod networks and node addresses are apart."""
    plan = Plan(name="a", index=index)
    a, b = plan.node(one), plan.node(other)
    assert a.address in plan.lan
    assert a.address not in {plan.api_address, plan.host_address}
    assert a.pod_network.subnet_of(plan.network)
    assert not a.pod_network.overlaps(plan.lan)
    assert a.pod_network.overlaps(b.pod_network) == (one == other)
    assert (a.address == b.address) == (one == other)


@given(name=st.from_regex(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?", fullmatch=True), index=INSTANCES)
def test_interfaces_fit(name: str, index: int) -> None:
    """Whatever the name, interface names stay within IFNAMSIZ."""
    plan = Plan(name=name, index=index)
    assert len(plan.host_interface) <= 15
    assert all(len(node.uplink) <= 15 for node in plan.nodes(MAX_NODES))


@pytest.mark.parametrize("name", ["", "Demo", "a/b", "..", "-a", "a-", "x" * 21, "a b"])
def test_names_that_could_escape_are_refused(name: str) -> None:
    """A name becomes part of paths: anything but a short label is refused."""
    with pytest.raises(PlanError, match="cannot name a cluster"):
        Plan(name=name, index=0)


@pytest.mark.parametrize("number", [0, -1, MAX_NODES + 1])
def test_node_numbers_have_limits(number: int) -> None:
    """A node outside the address plan is refused."""
    with pytest.raises(PlanError, match="outside"):
        Plan(name="a", index=0).node(number)

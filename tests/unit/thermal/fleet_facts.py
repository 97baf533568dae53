"""Decisions and Nodes to try rules of the whole fleet on."""

from collections.abc import Mapping

from npu.heat import Heat
from thermal.names import TAINT_HOT
from thermal.objects import NodeRecord
from thermal.policy import Decision, DeviceHeat, NodeHeat, Policy, decide

RESOURCE = "rockchip.com/npu"
ZONE = "topology.kubernetes.io/zone"
EVICTING = Policy(evict_in=frozenset({Heat.CRITICAL, Heat.EMERGENCY}))

_CELSIUS = {Heat.COOL: 45.0, Heat.WARM: 74.0, Heat.RECOVERING: 66.0}
_CELSIUS |= {Heat.HOT: 82.0, Heat.CRITICAL: 90.0, Heat.EMERGENCY: 101.0}


def decision(
    node: str, state: Heat = Heat.HOT, celsius: float | None = None, policy: Policy = EVICTING
) -> Decision:
    """Return what is decided on a node with one device."""
    device = DeviceHeat(
        device="npu0",
        vendor="rockchip",
        state=state,
        known=state,
        celsius=_CELSIUS[state] if celsius is None else celsius,
        missing_seconds=0.0,
    )
    heat = NodeHeat(node=node, devices=(device,), settled=True, ready=True)
    made = decide(heat, policy)
    assert made is not None
    return made


def node(
    name: str, *, zone: str | None = None, effect: str | None = None, resource: str = RESOURCE
) -> NodeRecord:
    """Return a Node with an NPU, closed by us with ``effect``."""
    return NodeRecord(
        name=name,
        labels={} if zone is None else {ZONE: zone},
        taints=() if effect is None else ({"key": TAINT_HOT, "effect": effect},),
        allocatable={resource: 1},
    )


def by_name(*records: NodeRecord) -> Mapping[str, NodeRecord]:
    """Return Nodes by name."""
    return {record.name: record for record in records}


def nodes(count: int, **about: str) -> dict[str, NodeRecord]:
    """Return so many Nodes, named n0, n1 and so on."""
    return {f"n{index}": node(f"n{index}", **about) for index in range(count)}

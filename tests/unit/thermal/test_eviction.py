"""Which Pods leave, when, and whether they have somewhere to go."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu.heat import Heat
from tests.unit.thermal.fleet_facts import by_name, decision, node
from thermal.budget import softened
from thermal.eviction import (
    Eviction,
    NpuPod,
    Pace,
    destinations,
    evictable,
    free,
    npu_pods,
    wants_eviction,
)
from thermal.objects import Json
from thermal.policy import Policy

RESOURCES = ["rockchip.com/npu", "b/npu"]


def pod(
    limits: dict[str, str] | None = None,
    *,
    phase: str = "Running",
    metadata: Json | None = None,
    **parts: object,
) -> Json:
    wanted = {"rockchip.com/npu": "1"} if limits is None else limits
    return {
        "metadata": {"name": "p", "namespace": "d", "uid": "u", **(metadata or {})},
        "spec": {"containers": [{"resources": {"limits": wanted}}], **parts},
        "status": {"phase": phase},
    }


def held(*pods: Json) -> list[NpuPod]:
    return npu_pods(pods, RESOURCES)


def test_only_pods_with_an_npu_count() -> None:
    """Finished Pods hold none, and mirror Pods cannot be evicted."""
    assert held(pod({"cpu": "2"}), pod(phase="Succeeded"), pod(phase="Failed")) == []
    assert held(pod(metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})) == []
    (found,) = held(pod({"b/npu": "2", "cpu": "1"}))
    assert found == NpuPod(namespace="d", name="p", uid="u", requests={"b/npu": 2})


def test_containers_are_summed() -> None:
    """Init containers run before, side-cars beside the others."""

    def container(count: int, **parts: str) -> Json:
        return {"resources": {"limits": {"b/npu": str(count)}}, **parts}

    both = pod(containers=[container(1), container(2)], initContainers=[container(2)])
    first = pod(containers=[container(1)], initContainers=[container(3)])
    beside = pod(containers=[container(1)], initContainers=[container(3, restartPolicy="Always")])

    assert [one.requests["b/npu"] for one in held(both, first, beside)] == [3, 3, 4]


@pytest.mark.parametrize(
    ("toleration", "returns"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "thermal.npu-platform.io/hot", "operator": "Exists"}, True),
        (
            {"key": "thermal.npu-platform.io/hot", "operator": "Exists", "effect": "NoExecute"},
            False,
        ),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "thermal.npu-platform.io/hot", "value": "80"}, False),
    ],
)
def test_pods_that_would_be_back_stay_unless_it_is_an_emergency(
    toleration: dict[str, str], *, returns: bool
) -> None:
    """Evicting them over and over cools nothing."""
    pods = held(pod(tolerations=[toleration]))

    assert bool(evictable(pods, emergency=False)) is not returns
    assert evictable(pods, emergency=True) == pods


def test_a_pod_that_is_leaving_is_left_alone() -> None:
    """Its grace period runs already."""
    assert evictable(held(pod(metadata={"deletionTimestamp": "t"})), emergency=True) == []


def test_only_closed_nodes_are_emptied() -> None:
    """An open or avoided node would get its Pods back; an emergency does not ask."""
    critical = decision("n0", Heat.CRITICAL)

    assert wants_eviction(critical)
    assert not wants_eviction(softened(critical))
    assert wants_eviction(softened(decision("n0", Heat.EMERGENCY)))
    assert not wants_eviction(decision("n0", Heat.HOT))
    assert not wants_eviction(decision("n0", Heat.CRITICAL, policy=Policy()))


def test_a_destination_is_cool_open_and_ready() -> None:
    """The coolest first; whoever has the resource."""
    ready = {
        name: replace(node(name), ready=True)
        for name in ("hot", "cool", "cooler", "warm", "tainted")
    }
    ready["tainted"] = replace(
        ready["tainted"],
        taints=({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},),
    )
    nodes = by_name(
        *ready.values(), node("down"), replace(node("other", resource="b/npu"), ready=True)
    )
    decisions = {name: decision(name, Heat.COOL) for name in nodes}
    decisions["hot"] = decision("hot", Heat.CRITICAL)
    decisions["warm"] = decision("warm", Heat.WARM)
    decisions["cooler"] = decision("cooler", Heat.COOL, celsius=30.0)

    found = destinations(nodes, decisions, "rockchip.com/npu", besides="hot")

    assert found == ["cooler", "cool"]
    assert free(nodes["cool"], held(pod()), "rockchip.com/npu") == 0
    assert free(nodes["cool"], [], "rockchip.com/npu") == 1


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 40), st.booleans()), max_size=40))
def test_the_pace_holds(asked: list[tuple[str, float, bool]]) -> None:
    """Never two new nodes within 30 s, nor three at a time, whatever is asked; others at once."""
    pace, now, begun = Pace(eviction=Eviction()), 0.0, []
    for name, passed, done in asked:
        now += passed
        if done:
            pace.keep(pace.active.keys() - {name})
        new = name not in pace.active
        if pace.admits(name, now, emergency=False):
            pace.start(name, now)
            if new:
                begun.append(now)
        assert len(pace.active) <= 2
        assert pace.admits("emergency", now, emergency=True)
    assert all(later - earlier >= 30 for earlier, later in pairwise(begun))


def test_off_means_no_state() -> None:
    """The switch wins over the list."""
    assert Eviction(enabled=False).heats == frozenset()
    assert Eviction().heats == {Heat.EMERGENCY}

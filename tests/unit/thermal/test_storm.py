"""When evictions are frozen, and when not any more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu.heat import Heat
from tests.unit.thermal.fleet_facts import decision
from thermal.actions import Evict, StopNewWork
from thermal.groups import CLUSTER, Group
from thermal.storm import Brake, Storm, frozen, observe

STORM = Storm()


def names(count: int) -> frozenset[str]:
    return frozenset(f"n{index}" for index in range(count))


def at(brake: Brake, hot: int, now: float, *, of: int = 10) -> Brake:
    return observe(brake, names(hot), {CLUSTER: names(of)}, now, STORM)


@pytest.mark.parametrize(
    ("hot", "of", "storms"),
    [(1, 3, False), (2, 3, False), (3, 3, True), (2, 10, False), (3, 10, True), (3, 11, False)],
)
def test_three_nodes_and_three_tenths(hot: int, of: int, *, storms: bool) -> None:
    """One of three is no storm; three of ten are."""
    assert bool(at(Brake(), hot, 0.0, of=of).storms) is storms


def test_slow_heating_is_no_storm() -> None:
    """Nodes that became hot over a long time are a warm day."""
    brake = at(Brake(), 1, 0.0)
    brake = at(brake, 2, 301.0)
    assert not at(brake, 3, 602.0).storms
    assert at(at(Brake(), 2, 0.0), 3, 300.0).storms


def test_it_lets_go_after_ten_calm_minutes() -> None:
    """Below 15 % for 600 s without a break."""
    brake = at(Brake(), 5, 0.0)
    brake = at(brake, 1, 1000.0)
    brake = at(brake, 2, 1500.0)
    brake = at(brake, 1, 1501.0)
    brake = at(brake, 1, 2100.0)
    assert brake.storms
    assert not at(brake, 1, 2101.0).storms


def test_a_domain_has_a_storm_of_its_own() -> None:
    """A failed fan tray of one rack freezes that rack only."""
    rack = Group("rack", "a")
    groups = {CLUSTER: names(100), rack: names(6)}

    assert observe(Brake(), names(3), groups, 0.0, STORM).storms == {rack}


def test_only_eviction_is_frozen() -> None:
    """New work is still kept away."""
    before = decision("n0", Heat.CRITICAL)
    after = frozen(before)

    assert any(isinstance(action, Evict) for action in before.actions)
    assert not any(isinstance(action, Evict) for action in after.actions)
    assert any(isinstance(action, StopNewWork) for action in after.actions)
    assert after.held_back == ("storm",)
    assert frozen(decision("n0", Heat.COOL)).held_back == ()


@given(st.lists(st.tuples(st.integers(0, 10), st.floats(0, 400)), max_size=30))
def test_a_calm_cluster_always_gets_free(past: list[tuple[int, float]]) -> None:
    """Whatever happened, ten minutes without heat end every storm: no manual reset."""
    brake, now = Brake(), 0.0
    for hot, passed in past:
        now += passed
        brake = at(brake, hot, now)

    brake = at(brake, 0, now + 1.0)
    assert not at(brake, 0, now + 602.0).storms

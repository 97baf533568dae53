"""Plugin and guard in a closed loop with the board model keep their promises."""

import pytest

from ci.closedloop.board import Tally
from ci.closedloop.scenarios import PODS, POLICIES, ROOMS, run


def loop(
    policy: str, *, room: str, pods: str, slots: int, hours: float = 4.0, board: str = "rk3588"
) -> Tally:
    """Return what a policy made of a board."""
    return run(
        POLICIES[policy](),
        room=ROOMS[room],
        pod_seconds=PODS[pods],
        slots=slots,
        hours=hours,
        board=board,
    )


@pytest.mark.parametrize("pods", ["short", "hour"])
def test_slots_cool_a_fanless_board_in_a_hot_room(pods: str) -> None:
    """At 38 °C: hardly hot or closed, nobody evicted, nearly as much work as crude taints."""
    ours = loop("default", room="38", pods=pods, slots=4)
    crude = loop("taints, 8 °C and 180 s", room="38", pods=pods, slots=4)

    assert ours.above_ratio <= 0.05
    assert ours.flips_per_hour <= 1.0
    assert ours.evictions_per_hour <= 0.1
    assert ours.busy_slots >= 0.9 * crude.busy_slots


@pytest.mark.parametrize("board", ["rk3588", "ungoverned"])
@pytest.mark.parametrize("room", ["38", "fan"])
def test_fanless_values_tame_a_pod_that_never_ends(board: str, room: str) -> None:
    """On a whole device, also where the kernel does nothing: never hot, so never closed."""
    ours = loop("fanless values", room=room, pods="endless", slots=1, board=board)

    assert ours.above_ratio <= 0.01
    assert ours.peak_celsius < 85.0
    assert ours.flips_per_hour <= 0.5
    assert ours.evictions_per_hour == 0.0
    assert ours.work >= 0.75


@pytest.mark.parametrize("pods", ["short", "endless"])
def test_default_never_comes_near_the_power_off(pods: str) -> None:
    """The worst the default allows: a whole device, a failing fan, a kernel that does nothing."""
    ours = loop("default", room="fan", pods=pods, slots=1, board="ungoverned")

    assert ours.peak_celsius < 100.0


def test_default_beats_a_taint_at_a_threshold() -> None:
    """A whole device with short Pods has no brake but the taint; it must not be the crude one."""
    ours = loop("default", room="38", pods="short", slots=1)
    crude = loop("taint at 80 °C", room="38", pods="short", slots=1)

    assert ours.above_ratio < 0.5 * crude.above_ratio
    assert ours.flips_per_hour < 0.2 * crude.flips_per_hour

"""What a node's heat leads to."""

import pytest

from npu.heat import Heat
from thermal.actions import Evict, Expel, LimitSlots, Release, StopNewWork
from thermal.policy import Decision, DeviceHeat, NodeHeat, Policy, decide


def device(
    state: Heat,
    *,
    known: Heat | None = None,
    name: str = "npu0",
    celsius: float | None = 50.0,
    missing: float = 0.0,
    for_seconds: float = 0.0,
) -> DeviceHeat:
    return DeviceHeat(
        device=name,
        vendor="rockchip",
        state=state,
        known=known or state,
        celsius=celsius,
        missing_seconds=missing,
        state_seconds=for_seconds,
    )


def judged(
    *devices: DeviceHeat,
    policy: Policy | None = None,
    ready: bool = True,
    unscheduled_seconds: float | None = None,
) -> Decision:
    heat = NodeHeat(
        node="n1",
        devices=devices,
        settled=True,
        ready=ready,
        unscheduled_seconds=unscheduled_seconds,
    )
    decision = decide(heat, policy or Policy())
    assert decision is not None
    return decision


def condition(decision: Decision) -> tuple[str, str]:
    assert decision.condition is not None
    return decision.condition.status, decision.condition.reason


@pytest.mark.parametrize(
    ("state", "status", "reason", "stops"),
    [
        (Heat.COOL, "False", "TemperatureNormal", False),
        (Heat.WARM, "False", "TemperatureNormal", False),
        (Heat.RECOVERING, "False", "Recovering", False),
        (Heat.HOT, "True", "Hot", True),
        (Heat.CRITICAL, "True", "Critical", True),
        (Heat.EMERGENCY, "True", "Emergency", True),
    ],
)
def test_each_state_has_its_condition_and_action(
    state: Heat, status: str, reason: str, *, stops: bool
) -> None:
    """A node stops getting work from hot on, and the condition says why."""
    decision = judged(device(state))

    assert condition(decision) == (status, reason)
    assert (decision.stop is not None) is stops
    assert decision.state is state


def test_the_bucket_is_rounded_down_to_five_degrees() -> None:
    """Nodes show 80 for 84.9 °C, so that they are rarely rewritten."""
    stop = judged(device(Heat.HOT, celsius=84.9)).stop

    assert stop == StopNewWork(devices=("npu0",), bucket_celsius=80)


def test_slots_are_limited_to_one_and_then_to_none() -> None:
    """Hot leaves one slot, critical none."""
    assert LimitSlots(device="npu0", slots=1) in judged(device(Heat.HOT)).actions
    assert LimitSlots(device="npu0", slots=0) in judged(device(Heat.CRITICAL)).actions


def test_one_hot_card_of_two_leaves_the_node_open() -> None:
    """A taint would take the cool card away, too."""
    decision = judged(device(Heat.HOT), device(Heat.COOL, name="npu1"))

    assert decision.stop is None
    assert decision.state is Heat.HOT
    assert LimitSlots(device="npu0", slots=1) in decision.actions


def test_nothing_is_said_before_it_is_known() -> None:
    """A node that is not settled, or has no device, gets no decision."""
    unsettled = NodeHeat(
        node="n1",
        devices=(device(Heat.COOL),),
        settled=False,
        ready=True,
    )

    assert decide(unsettled, Policy()) is None


@pytest.mark.parametrize(
    ("known", "missing", "policy", "stops"),
    [
        (Heat.HOT, 20.0, "hold", True),
        (Heat.HOT, 7200.0, "hold", True),
        (Heat.WARM, 20.0, "hold", False),
        (Heat.WARM, 61.0, "hold", True),
        (Heat.RECOVERING, 61.0, "hold", True),
        (Heat.COOL, 7200.0, "hold", False),
        (Heat.COOL, 61.0, "failSafe", True),
        (Heat.COOL, 20.0, "failSafe", False),
        (Heat.HOT, 20.0, "failOpen", True),
        (Heat.HOT, 61.0, "failOpen", False),
    ],
)
def test_missing_data_freezes_and_then_follows_the_policy(
    known: Heat, missing: float, policy: str, *, stops: bool
) -> None:
    """Lost data closes a node that was at least warm, and never opens a hot one by default."""
    chosen = Policy(missing_data=policy)  # type: ignore[arg-type]
    decision = judged(device(Heat.UNKNOWN, known=known, missing=missing), policy=chosen)

    assert (decision.stop is not None) is stops
    assert condition(decision)[0] == "Unknown"


def test_time_out_becomes_loss_after_a_minute() -> None:
    """The condition tells a short gap from a lost sensor."""
    assert condition(judged(device(Heat.UNKNOWN, missing=20)))[1] == "SensorTimeout"
    assert condition(judged(device(Heat.UNKNOWN, missing=60)))[1] == "SensorLost"


def test_known_heat_outranks_missing_data() -> None:
    """One blind and one hot device: the node is hot."""
    decision = judged(device(Heat.UNKNOWN), device(Heat.HOT, name="npu1"))

    assert condition(decision) == ("True", "Hot")


def test_a_node_whose_exporter_is_gone_is_let_go_after_half_an_hour() -> None:
    """Ready, and no exporter Pod bound to it: nobody will ever report again."""
    blind = device(Heat.UNKNOWN, known=Heat.HOT, missing=1800)
    gone = judged(blind, unscheduled_seconds=1800.0)

    assert gone.actions == (Release(forget=True),)
    assert gone.condition is None


@pytest.mark.parametrize(
    ("ready", "unscheduled_seconds"), [(True, None), (False, 9999.0), (True, 60.0)]
)
def test_a_hot_node_that_may_report_again_stays_closed(
    *, ready: bool, unscheduled_seconds: float | None
) -> None:
    """A failing exporter, a node that is down, or an exporter just removed open nothing."""
    decision = judged(
        device(Heat.UNKNOWN, known=Heat.HOT, missing=1800),
        ready=ready,
        unscheduled_seconds=unscheduled_seconds,
    )

    assert decision.stop is not None


def test_eviction_is_decided_only_where_configured() -> None:
    """The default never asks for eviction."""
    assert not any(isinstance(a, Evict) for a in judged(device(Heat.EMERGENCY)).actions)
    policy = Policy(evict_in=frozenset({Heat.EMERGENCY}))
    assert Evict(devices=("npu0",)) in judged(device(Heat.EMERGENCY), policy=policy).actions


EXPELLING = Policy(expel_after_seconds=120.0)


@pytest.mark.parametrize(
    ("heat", "expected"),
    [
        (device(Heat.HOT, for_seconds=9999), None),
        (device(Heat.CRITICAL, for_seconds=119), None),
        (device(Heat.CRITICAL, for_seconds=120), Expel()),
        (device(Heat.EMERGENCY), Expel()),
        (device(Heat.UNKNOWN, known=Heat.EMERGENCY, missing=60), Expel(start=False)),
        (device(Heat.UNKNOWN, known=Heat.CRITICAL, missing=899), Expel(start=False)),
        (device(Heat.UNKNOWN, known=Heat.CRITICAL, missing=900), None),
        (device(Heat.UNKNOWN, known=Heat.HOT, missing=60), None),
    ],
)
def test_everything_leaves_only_as_the_last_resort(
    heat: DeviceHeat, expected: Expel | None
) -> None:
    """After the time for eviction, at once in an emergency, and never begun on missing data."""
    assert judged(heat, policy=EXPELLING).expel == expected
    assert judged(heat).expel is None


def test_nothing_is_expelled_from_a_node_with_a_cool_card() -> None:
    """A card of many that is too hot closes nothing but itself."""
    decision = judged(device(Heat.EMERGENCY), device(Heat.COOL, name="npu1"), policy=EXPELLING)

    assert decision.expel is None
    assert decision.stop is None
    assert LimitSlots(device="npu0", slots=0) in decision.actions

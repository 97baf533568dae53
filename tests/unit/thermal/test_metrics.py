"""The guard's own metrics."""

import re
from pathlib import Path

from npu.heat import RULES, Heat, Reason, Transition
from npu.thresholds import Settings
from tests.unit.thermal.dra.pool_facts import DRIVER, published
from thermal.dra.exposition import PublishedDevices
from thermal.dra.rules import Rule, RuleRecord
from thermal.dra.slices import SliceRecord
from thermal.errors import ConflictError
from thermal.fleet import NodeStatus, NodeTransition
from thermal.groups import CLUSTER
from thermal.metrics import Metrics, reachable
from thermal.pacing import Pacer
from thermal.policy import Decision, DeviceHeat
from thermal.restraint import Restrained


def status(state: Heat = Heat.HOT) -> NodeStatus:
    device = DeviceHeat(
        device="npu0",
        vendor="rockchip",
        state=state,
        known=Heat.HOT,
        celsius=81.5,
        missing_seconds=0.0,
    )
    decision = Decision(node="n1", state=state, condition=None, actions=(), devices=(device,))
    return NodeStatus(
        node="n1",
        decision=decision,
        devices=(),
        limits=Settings().resolve(),
        since="",
        sample_age_seconds=2.0,
        problem=None,
    )


def page(metrics: Metrics) -> list[str]:
    return metrics.exposition().decode().splitlines()


class Devices:
    """A cluster with one published device, hot and observed; and a loop that wrote something."""

    @property
    def writes(self) -> dict[str, int]:
        """What it wrote."""
        return {"create": 1}

    def slices(self) -> dict[str, SliceRecord]:
        """Return the slice."""
        return {"s": published(DRIVER)}

    def rules(self) -> dict[str, RuleRecord]:
        """Return the rule."""
        rule = Rule(name="r", node="n1", driver="d", device=None, effect="None", value="hot")
        verdict = "1 pod would be evicted"
        return {"r": RuleRecord(rule=rule, resource_version="1", state="", verdict=verdict)}


def test_every_metric_is_documented() -> None:
    """The page has name, type, labels and meaning of each metric, and no other metric."""
    metrics = Metrics(mode="enforce")
    restrained = Restrained(
        limits={CLUSTER: 1},
        used={CLUSTER: 1},
        storms=frozenset({CLUSTER}),
        watched=frozenset({CLUSTER}),
    )
    metrics.judged({"n1": status()}, evaluated_at=1.0, restrained=restrained)
    metrics.self_tested("enforced")
    metrics.api_error(ConflictError("GET /x", 409, "busy"))
    published = PublishedDevices(Devices(), Devices(), Devices(), leads=lambda: 1)
    metrics.add(published)
    documented = {
        (name, kind, tuple(sorted(re.findall(r"`(\w+)`", labels))), meaning)
        for name, kind, labels, meaning in re.findall(
            r"\| `(npu_thermal_guard_\w+)` \| (\w+) \| ([^|]*) \| (.*) \|",
            (Path(__file__).parents[3] / "docs" / "metrics-thermal-guard.md").read_text(),
        )
    }

    families = [*metrics.collect(), *published.collect()]

    assert all(family.samples for family in families)
    assert documented == {
        (
            family.name + ("_total" if family.type == "counter" else ""),
            family.type,
            tuple(sorted(family.samples[0].labels)),
            family.documentation,
        )
        for family in families
    }


def test_a_standby_shows_no_nodes() -> None:
    """Two replicas never export the same node twice."""
    metrics = Metrics(mode="enforce")

    lines = page(metrics)

    assert "npu_thermal_guard_leader 0.0" in lines
    assert not any('node="' in line for line in lines)


def test_a_leader_shows_state_thresholds_and_taint() -> None:
    """Only the state a node is in; thresholds per node, so that alerts need no constants."""
    metrics = Metrics(mode="observe")
    metrics.judged({"n1": status()}, tainted=frozenset({"n1"}), evaluated_at=1.0)

    lines = page(metrics)

    assert [line for line in lines if line.startswith("npu_thermal_guard_node_state{")] == [
        'npu_thermal_guard_node_state{node="n1",state="hot"} 1.0'
    ]
    assert 'npu_thermal_guard_threshold_celsius{node="n1",threshold="hot"} 80.0' in lines
    assert 'npu_thermal_guard_taint_active{node="n1"} 1.0' in lines
    assert 'npu_thermal_guard_temperature_celsius{device="npu0",node="n1"} 81.5' in lines
    assert 'npu_thermal_guard_mode{mode="observe"} 1.0' in lines


def test_a_blind_device_has_no_temperature() -> None:
    """The last value is not the value of now."""
    metrics = Metrics(mode="enforce")
    metrics.judged({"n1": status(Heat.UNKNOWN)})

    assert not any("temperature_celsius{" in line for line in page(metrics))


def test_reachable_transitions_start_at_zero() -> None:
    """increase() would miss the first one otherwise; unreachable pairs are not exported."""
    lines = page(Metrics(mode="enforce"))

    assert 'npu_thermal_guard_transitions_total{from="warm",to="hot"} 0.0' in lines
    assert not any('from="hot",to="cool"' in line for line in lines)
    assert len(reachable()) < len(Heat) ** 2
    assert {(s, r.target) for r in RULES for s in r.sources} <= set(reachable())


def test_events_are_counted() -> None:
    """Transitions, failed requests, scrapes and writes."""
    metrics = Metrics(mode="enforce")
    moved = Transition(source=Heat.WARM, target=Heat.HOT, reason=Reason.TEMPERATURE, celsius=81.0)
    metrics.judged({"n1": status()})
    metrics.transition(NodeTransition(node="n1", device="npu0", transition=moved))
    metrics.api_error(ConflictError("PATCH /api/v1/nodes/n1", 409, "x"))
    metrics.scraped("success", malformed=3)
    metrics.wrote(["taints"])
    metrics.self_tested("missing")

    lines = page(metrics)

    assert 'npu_thermal_guard_transitions_total{from="warm",to="hot"} 1.0' in lines
    assert 'npu_thermal_guard_node_transitions_total{node="n1"} 1.0' in lines
    assert 'npu_thermal_guard_api_errors_total{operation="patch",reason="conflict"} 1.0' in lines
    assert "npu_thermal_guard_malformed_lines_total 3.0" in lines
    assert 'npu_thermal_guard_node_writes_total{part="taints"} 1.0' in lines
    assert "npu_thermal_guard_admission_policy_enforced 0.0" in lines


def spent(pacer: Pacer, now: float, cost: int = 1) -> int:
    """Return how often something of this cost may be done."""
    for count in range(20):
        if not pacer.ready(now):
            return count
        pacer.spend(cost)
    return 20


def test_the_pace_is_nine_a_second_after_a_burst() -> None:
    """A full bucket, then the rate."""
    pacer = Pacer()

    assert [spent(pacer, now) for now in (0.0, 1.0, 1.05)] == [9, 9, 0]


def test_what_cost_more_than_thought_is_waited_for() -> None:
    """A write that took five attempts delays what comes next by as much."""
    pacer = Pacer()

    assert spent(pacer, 0.0, cost=5) == 2
    pacer.spend(10)
    assert [spent(pacer, now) for now in (1.0, 2.0, 3.0)] == [0, 7, 9]


def test_takes_one_by_one_until_none_is_left() -> None:
    """A write of one request asks and spends in one."""
    pacer = Pacer(rate_per_second=1.0, burst=2)

    taken = [pacer.take(now) for now in (0.0, 0.0, 0.0, 0.5, 1.0)]

    assert taken == [True, True, False, False, True]

"""Families of metrics about nodes and about what restrains decisions. Pure."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from npu.heat import Heat
from thermal.fleet import NodeStatus
from thermal.policy import HeldBack
from thermal.restraint import Restrained

_PREFIX = "npu_thermal_guard"
_EXPORTED_THRESHOLDS = ("warm", "hot", "hot_leave", "critical", "emergency")


def restraint_families(
    statuses: Mapping[str, NodeStatus], restrained: Restrained
) -> Iterator[Metric]:
    """Yield what holds decisions back."""
    limit = GaugeMetricFamily(
        f"{_PREFIX}_budget_limit",
        "Nodes of a resource, or with the same value of a label, that may be closed at a time.",
        labels=["scope", "name"],
    )
    used = GaugeMetricFamily(
        f"{_PREFIX}_budget_used", "Of those, nodes that are closed.", labels=["scope", "name"]
    )
    for group, count in sorted(restrained.limits.items()):
        limit.add_metric(list(group), count)
        used.add_metric(list(group), restrained.used.get(group, 0))
    storm = GaugeMetricFamily(
        f"{_PREFIX}_storm_active",
        "1 while evictions are frozen because many nodes became hot at once.",
        labels=["scope", "name"],
    )
    for group in sorted(restrained.watched):
        storm.add_metric(list(group), float(group in restrained.storms))
    held = GaugeMetricFamily(
        f"{_PREFIX}_held_back_nodes",
        "Nodes for which less is done than their heat asks for, by reason.",
        labels=["reason"],
    )
    reasons = Counter(dict.fromkeys(get_args(HeldBack), 0))
    for status in statuses.values():
        if status.decision is not None:
            reasons.update(status.decision.held_back)
    for reason, count in sorted(reasons.items()):
        held.add_metric([reason], count)
    yield from (limit, used, storm, held)


def node_families(
    statuses: Mapping[str, NodeStatus],
    *,
    tainted: Collection[str],
    changes: Mapping[str, int],
    waiting: int,
) -> Iterator[Metric]:
    """Yield the state of every node, and how many there are.

    ``tainted`` are the nodes with our taint, ``changes`` the transitions of each since this replica
    leads, ``waiting`` how many nodes wait for a write.
    """
    state = GaugeMetricFamily(
        f"{_PREFIX}_node_state",
        "The heat state of a node, always 1; only the state it is in.",
        labels=["node", "state"],
    )
    taint = GaugeMetricFamily(
        f"{_PREFIX}_taint_active", "1 while our taint is on the node.", labels=["node"]
    )
    temperature = GaugeMetricFamily(
        f"{_PREFIX}_temperature_celsius",
        "Filtered temperature of a device, the one that decides.",
        labels=["node", "device"],
    )
    threshold = GaugeMetricFamily(
        f"{_PREFIX}_threshold_celsius",
        "Temperatures that decide on this node, from its own trip points.",
        labels=["node", "threshold"],
    )
    age = GaugeMetricFamily(
        f"{_PREFIX}_sample_age_seconds",
        "Age of the oldest last valid temperature among the node's devices.",
        labels=["node"],
    )
    moved = CounterMetricFamily(
        f"{_PREFIX}_node_transitions",
        "Changes of a heat state on a node since this replica leads.",
        labels=["node"],
    )
    for name, status in statuses.items():
        named = status.limits.named()
        for key in _EXPORTED_THRESHOLDS:
            threshold.add_metric([name, key], named[key])
        age.add_metric([name], status.sample_age_seconds)
        taint.add_metric([name], float(name in tainted))
        moved.add_metric([name], changes.get(name, 0))
        if status.decision is None:
            continue
        state.add_metric([name, status.decision.state.value], 1)
        for device in status.decision.devices:
            if device.celsius is not None and device.state is not Heat.UNKNOWN:
                temperature.add_metric([name, device.device], device.celsius)
    yield from (state, taint, temperature, threshold, age, moved)
    yield GaugeMetricFamily(
        f"{_PREFIX}_nodes", "Nodes with an NPU that the guard looks after.", value=len(statuses)
    )
    yield GaugeMetricFamily(
        f"{_PREFIX}_nodes_waiting",
        "Nodes that do not look as decided yet and wait for a write.",
        value=waiting,
    )

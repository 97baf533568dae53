"""What the guard tells Prometheus about published devices: node status shows none in this mode."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from thermal.dra.rules import RuleRecord
from thermal.dra.slices import SliceRecord

_PREFIX = "npu_thermal_guard"


class View(Protocol):
    """What is known of the cluster, from memory."""

    def slices(self) -> dict[str, SliceRecord]:
        """Return our ResourceSlices by name."""
        ...

    def rules(self) -> dict[str, RuleRecord]:
        """Return our DeviceTaintRules by name."""
        ...


class Counted(Protocol):
    """A loop that counts what it wrote."""

    @property
    def writes(self) -> Mapping[str, int]:
        """Return the numbers by operation."""
        ...


class PublishedDevices(Collector):
    """Devices by node on the leader, and writes of ResourceSlices."""

    def __init__(
        self,
        view: View,
        publisher: Counted,
        ruler: Counted,
        *,
        leads: Callable[[], int | None],
    ) -> None:
        self._view = view
        self._ruler = ruler
        self._publisher = publisher
        self._leads = leads

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        writes = CounterMetricFamily(
            f"{_PREFIX}_slice_writes",
            "ResourceSlices that were written, by operation.",
            labels=["operation"],
        )
        for operation, count in sorted(self._publisher.writes.items()):
            writes.add_metric([operation], count)
        yield writes
        ruled = CounterMetricFamily(
            f"{_PREFIX}_rule_writes",
            "DeviceTaintRules that were written, by operation.",
            labels=["operation"],
        )
        for operation, count in sorted(self._ruler.writes.items()):
            ruled.add_metric([operation], count)
        yield ruled
        if self._leads() is None:
            return
        devices = GaugeMetricFamily(
            f"{_PREFIX}_published_devices",
            "Devices in ResourceSlices by the resource they are offered under: available, or"
            " tainted because they are broken or withdrawn.",
            labels=["node", "resource", "state"],
        )
        for of_node, count in sorted(_published(self._view.slices().values()).items()):
            devices.add_metric(list(of_node), count)
        yield devices
        rules = GaugeMetricFamily(
            f"{_PREFIX}_device_taint_rules",
            "Taints on hot devices by effect; None changes nothing and tells what would be.",
            labels=["node", "effect"],
        )
        pods = GaugeMetricFamily(
            f"{_PREFIX}_device_taint_pods",
            "Pods that a taint on hot devices evicts, or with the effect None would evict.",
            labels=["node", "effect"],
        )
        counts: Counter[tuple[str, str]] = Counter()
        affected: Counter[tuple[str, str]] = Counter()
        for record in self._view.rules().values():
            where: tuple[str, str] = (record.rule.node, record.rule.effect)
            counts[where] += 1
            if record.pods is not None:
                affected[where] += record.pods
        for family, values in ((rules, counts), (pods, affected)):
            for labels, count in sorted(values.items()):
                family.add_metric(list(labels), count)
            yield family


def _published(slices: Iterable[SliceRecord]) -> Counter[tuple[str, str, str]]:
    """Return how many devices there are by node, resource and state; a pool has several slices."""
    found: Counter[tuple[str, str, str]] = Counter()
    for item in slices:
        for (resource, state), count in item.capacity.items():
            found[(item.node, resource, state)] += count
    return found

"""What the guard tells Prometheus.

Series per node exist on the leader only, and only the state a node is in; a standby tells that it
is none.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from daemon.version import REVISION, VERSION
from npu.heat import RULES, Heat
from thermal.errors import ApiError
from thermal.families import node_families, restraint_families
from thermal.fleet import NodeStatus, NodeTransition
from thermal.restraint import Restrained
from thermal.selftest import Outcome

_PREFIX = "npu_thermal_guard"


def reachable() -> list[tuple[Heat, Heat]]:
    """Return every pair of states that a transition can have."""
    pairs = {(source, rule.target) for rule in RULES for source in rule.sources}
    pairs |= {(state, Heat.UNKNOWN) for state in Heat if state is not Heat.UNKNOWN}
    return sorted(pairs)


EvictionOutcome = Literal["evicted", "blocked", "gone", "failed", "no_destination"]


class Metrics(Collector):
    """Counters and the last judgement; every method may be called from any thread."""

    def __init__(self, *, mode: str) -> None:
        self._mode = mode
        self._lock = threading.Lock()
        self._transitions = Counter(dict.fromkeys(reachable(), 0))
        self._node_transitions: Counter[str] = Counter()
        self._api_errors: Counter[tuple[str, str]] = Counter()
        self._scrapes: Counter[str] = Counter({"success": 0, "timeout": 0, "no_exporter": 0})
        self._writes: Counter[str] = Counter(
            dict.fromkeys(("taints", "annotations", "labels", "condition"), 0)
        )
        self._malformed = 0
        self._statuses: Mapping[str, NodeStatus] | None = None
        self._tainted: frozenset[str] = frozenset()
        self._evaluated_at: float | None = None
        self._self_test: Outcome | None = None
        self._waiting = 0
        self._restrained = Restrained()
        self._storms = 0
        self._evictions: Counter[str] = Counter(dict.fromkeys(get_args(EvictionOutcome), 0))
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def transition(self, change: NodeTransition) -> None:
        """Count a transition."""
        pair = (change.transition.source, change.transition.target)
        with self._lock:
            self._transitions[pair] += 1
            self._node_transitions[change.node] += 1

    def api_error(self, error: ApiError) -> None:
        """Count a failed request by method and reason, never by object."""
        with self._lock:
            self._api_errors[(error.operation.split(" ", 1)[0].lower(), error.reason)] += 1

    def scraped(self, outcome: str, malformed: int = 0) -> None:
        """Count a scrape, and lines of the page that made no sense."""
        with self._lock:
            self._scrapes[outcome] += 1
            self._malformed += malformed

    def wrote(self, parts: Iterable[str]) -> None:
        """Count parts of Nodes that were written."""
        with self._lock:
            self._writes.update(parts)

    def self_tested(self, outcome: Outcome) -> None:
        """Keep the outcome of the self-test."""
        with self._lock:
            self._self_test = outcome

    def evicted(self, outcome: EvictionOutcome) -> None:
        """Count an attempt to evict a Pod."""
        with self._lock:
            self._evictions[outcome] += 1

    def storm(self, *, began: bool) -> None:
        """Count a storm when it begins."""
        with self._lock:
            self._storms += began

    def judged(
        self,
        statuses: Mapping[str, NodeStatus] | None,
        *,
        tainted: frozenset[str] = frozenset(),
        evaluated_at: float | None = None,
        restrained: Restrained | None = None,
    ) -> None:
        """Keep the last judgement; None on a standby. ``evaluated_at`` is Unix time."""
        with self._lock:
            self._statuses = statuses
            self._tainted = tainted
            self._evaluated_at = evaluated_at
            self._restrained = restrained or Restrained()
            if statuses is None:
                self._node_transitions.clear()

    def add(self, collector: Collector) -> None:
        """Add families of another part of the guard to the page."""
        self._registry.register(collector)

    def waiting(self, count: int) -> None:
        """Keep how many nodes wait for a write."""
        with self._lock:
            self._waiting = count

    def exposition(self) -> bytes:
        """Return the page in the Prometheus text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield all families; called by the registry."""
        with self._lock:
            families = [*self._process(), *self._counters()]
            if self._statuses is not None:
                families += restraint_families(self._statuses, self._restrained)
                families += node_families(
                    self._statuses,
                    tainted=self._tainted,
                    changes=self._node_transitions,
                    waiting=self._waiting,
                )
        yield from families

    def _process(self) -> Iterator[Metric]:
        build = GaugeMetricFamily(
            f"{_PREFIX}_build_info", "The running build.", labels=["version", "revision"]
        )
        build.add_metric([VERSION, REVISION], 1)
        yield build
        mode = GaugeMetricFamily(
            f"{_PREFIX}_mode", "1 for the mode in force: enforce or observe.", labels=["mode"]
        )
        for name in ("enforce", "observe"):
            mode.add_metric([name], float(name == self._mode))
        yield mode
        yield GaugeMetricFamily(
            f"{_PREFIX}_leader",
            "1 on the replica that judges and writes; series of nodes exist there only.",
            value=float(self._statuses is not None),
        )
        if self._evaluated_at is not None:
            yield GaugeMetricFamily(
                f"{_PREFIX}_last_evaluation_timestamp_seconds",
                "Unix time of the last judgement of all nodes.",
                value=self._evaluated_at,
            )
        if self._self_test in ("enforced", "missing"):
            yield GaugeMetricFamily(
                f"{_PREFIX}_admission_policy_enforced",
                "1 when a forbidden write was refused by the admission policy, 0 when it would"
                " have been stored. Absent while not known.",
                value=float(self._self_test == "enforced"),
            )

    def _counters(self) -> Iterator[Metric]:
        transitions = CounterMetricFamily(
            f"{_PREFIX}_transitions",
            "Changes of a device's heat state, in all nodes together.",
            labels=["from", "to"],
        )
        for (source, target), count in sorted(self._transitions.items()):
            transitions.add_metric([source.value, target.value], count)
        yield transitions
        errors = CounterMetricFamily(
            f"{_PREFIX}_api_errors",
            "Requests to the API server that failed, by method and reason.",
            labels=["operation", "reason"],
        )
        for (operation, reason), count in sorted(self._api_errors.items()):
            errors.add_metric([operation, reason], count)
        yield errors
        scrapes = CounterMetricFamily(
            f"{_PREFIX}_scrapes", "Readings of exporters, by outcome.", labels=["outcome"]
        )
        for outcome, count in sorted(self._scrapes.items()):
            scrapes.add_metric([outcome], count)
        yield scrapes
        yield CounterMetricFamily(
            f"{_PREFIX}_malformed_lines",
            "Lines of exporter pages that were left out because they made no sense.",
            value=self._malformed,
        )
        writes = CounterMetricFamily(
            f"{_PREFIX}_node_writes", "Parts of Nodes that were written.", labels=["part"]
        )
        for part, count in sorted(self._writes.items()):
            writes.add_metric([part], count)
        yield writes
        yield CounterMetricFamily(
            f"{_PREFIX}_storms",
            "Times that so many nodes became hot at once that evictions were frozen.",
            value=self._storms,
        )
        evictions = CounterMetricFamily(
            f"{_PREFIX}_evictions",
            "Attempts to evict a Pod with an NPU from a node that is too hot, by outcome.",
            labels=["outcome"],
        )
        for outcome, count in sorted(self._evictions.items()):
            evictions.add_metric([outcome], count)
        yield evictions

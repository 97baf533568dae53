"""The plugin's own metrics."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from daemon.supervisor import Loop
from daemon.version import REVISION, VERSION
from plugin.config import PluginConfig

_PREFIX = "npu_device_plugin"
_ALLOCATE_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0)
_REGISTRATION_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)

#: Every value of the ``reason`` label of ``errors_total``; all exist from the start, so that the
#: first error is an increase.
ERROR_REASONS = (
    "directory_unusable",
    "serve_failed",
    "register_failed",
    "own_socket_vanished",
    "no_stream",
    "unknown_device",
    "unhealthy_device",
    "no_device",
    "held_in_other_mode",
    "too_many_slots",
    "path_conflict",
    "ambiguous",
    "unknown_claim",
    "api_unreachable",
    "api_refused",
    "checkpoint_failed",
    "cdi_failed",
    "internal",
)


class Metrics:
    """Counters and histograms that the threads of the plugin write to."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registrations = Counter(
            f"{_PREFIX}_registrations",
            "Registrations that the kubelet accepted.",
            ["resource"],
            registry=self.registry,
        )
        self.list_updates = Counter(
            f"{_PREFIX}_list_updates",
            "Device lists sent to the kubelet.",
            ["resource"],
            registry=self.registry,
        )
        self.list_sent = Gauge(
            f"{_PREFIX}_list_sent_timestamp_seconds",
            "Unix time of the last device list sent to the kubelet; absent until there is one.",
            ["resource"],
            registry=self.registry,
        )
        self.rescans = Counter(
            f"{_PREFIX}_rescans",
            "Looks at the board for devices that come and go.",
            registry=self.registry,
        )
        self.allocations = Counter(
            f"{_PREFIX}_allocations",
            "Containers that were given devices.",
            ["resource"],
            registry=self.registry,
        )
        self.allocate_duration = Histogram(
            f"{_PREFIX}_allocate_duration_seconds",
            "Time to answer Allocate, refusals included.",
            ["resource"],
            buckets=_ALLOCATE_BUCKETS,
            registry=self.registry,
        )
        self.registration_duration = Histogram(
            f"{_PREFIX}_registration_seconds",
            "Time from the appearance of the kubelet's socket (or of the resource, if later) "
            "until the first device list was sent.",
            ["resource"],
            buckets=_REGISTRATION_BUCKETS,
            registry=self.registry,
        )
        self.kubelet_restarts = Counter(
            f"{_PREFIX}_kubelet_restarts",
            "Kubelet restarts noticed.",
            registry=self.registry,
        )
        self.errors = Counter(
            f"{_PREFIX}_errors", "Errors by reason.", ["reason"], registry=self.registry
        )
        for reason in ERROR_REASONS:
            self.errors.labels(reason)

    def prepare(self, resource: str) -> None:
        """Create the series of a resource, so that rates work from the first event."""
        for counter in (self.registrations, self.list_updates, self.allocations):
            counter.labels(resource)
        self.allocate_duration.labels(resource)
        self.registration_duration.labels(resource)


class State(Collector):
    """Gauges computed when they are scraped, from functions that answer from memory."""

    def __init__(self, sources: Iterable[Callable[[], Iterator[Metric]]]) -> None:
        self._sources = tuple(sources)

    def collect(self) -> Iterator[Metric]:
        """Yield the current state."""
        for source in self._sources:
            yield from source()

    def describe(self) -> list[Metric]:
        """Promise nothing: registration must not call the sources."""
        return []


def gauge(name: str, text: str, labels: Iterable[str] = ()) -> GaugeMetricFamily:
    """Return an empty gauge family ``npu_device_plugin_<name>``."""
    return GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=list(labels))


def counter(name: str, text: str, labels: Iterable[str] = ()) -> CounterMetricFamily:
    """Return an empty counter family ``npu_device_plugin_<name>_total``."""
    return CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=list(labels))


def build_info() -> Iterator[Metric]:
    """Yield the version."""
    family = gauge("build_info", "Version of the device plugin.", ["version", "revision"])
    family.add_metric([VERSION, REVISION], 1)
    yield family


def config_info(config: PluginConfig) -> Callable[[], Iterator[Metric]]:
    """Return a source of the settings in force, by which nodes of a fleet are told apart."""

    def collect() -> Iterator[Metric]:
        labels = {
            "mode": config.mode,
            "slots": str(config.sharing.slots),
            "library": config.library.mode,
            "injection": config.device_injection,
            "heat": _switch(on=config.heat.enabled),
            "clamp": _switch(on=config.heat.clamp_frequency),
        }
        family = gauge("config_info", "Settings in force on this node (always 1).", labels)
        family.add_metric(list(labels.values()), 1)
        yield family

    return collect


def _switch(*, on: bool) -> str:
    return "on" if on else "off"


def loop_errors(loops: Callable[[], Iterable[Loop]]) -> Callable[[], Iterator[Metric]]:
    """Return a source of failed steps by loop."""

    def collect() -> Iterator[Metric]:
        family = counter("loop_errors", "Steps of a loop that failed.", ["loop"])
        for loop in loops():
            family.add_metric([loop.name], loop.errors)
        yield family

    return collect

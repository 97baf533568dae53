"""Metrics of an inference service, with the names and labels that rules and dashboards read."""

from collections import Counter as Tally
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)

from inference import perfdetail
from inference.backends import Description
from inference.dispatcher import Dispatcher

#: Seconds; twelve, so that a service is some fifty series.
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_BATCHES = (1, 2, 4, 8)
#: Codes that answers have: increase() would miss the first of one that was not there from zero.
CODES = (200, 400, 413, 500, 503, 504)
_LABELS = ("service_name", "model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What the service is called and what it serves; ``core_mask`` names the cores."""

    service_name: str
    model: str
    core_mask: str


class Metrics:
    """The registry of one service, and the places where requests are counted."""

    def __init__(self, identity: Identity) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._identity = identity
        self._values = (identity.service_name, identity.model)
        self._requests = Counter(
            "npu_inference_requests",
            "Answered requests by HTTP status; 500 and more are errors of the service.",
            (*_LABELS, "code"),
            registry=self.registry,
        )
        for code in CODES:
            self._requests.labels(*self._values, str(code))
        self._duration = self._histogram(
            "npu_inference_duration_seconds", "Time of a request on the NPU, without waiting."
        )
        self._wait = self._histogram(
            "npu_inference_queue_wait_seconds", "Time that a request waited before it ran."
        )
        self._batch = self._histogram(
            "npu_inference_batch_size", "Requests that ran together.", _BATCHES
        )
        self._load = self._gauge(
            "npu_model_load_seconds",
            "Time that loading the model for all workers took.",
            ("model",),
        ).labels(identity.model)

    def answered(self, status: int) -> None:
        """Count an answer."""
        self._requests.labels(*self._values, str(status)).inc()

    def waited(self, seconds: float) -> None:
        """Observe how long a request waited."""
        self._wait.observe(seconds)

    def ran(self, seconds: float) -> None:
        """Observe how long a request ran, alone."""
        self._duration.observe(seconds)
        self._batch.observe(1)

    def loaded(self, seconds: float) -> None:
        """Note how long loading took."""
        self._load.set(seconds)

    def watch(self, dispatcher: Dispatcher) -> None:
        """Export the state of the queue, read at each scrape."""
        self._reading(
            "npu_inference_queue_depth",
            "Requests that wait; those that run are not among them.",
            lambda: dispatcher.depth,
        )
        self._reading("npu_inference_in_flight", "Requests that run.", lambda: dispatcher.in_flight)
        self._reading(
            "npu_inference_workers",
            "Requests that may run at once: one per core, half of them while the NPU is hot.",
            lambda: dispatcher.workers,
        )
        self._reading(
            "npu_inference_throttled",
            "1 while the service runs at half speed because the NPU is hot.",
            lambda: dispatcher.throttled,
        )

    def temperature(self, read: Callable[[], float | None]) -> None:
        """Export whether the service can see the temperature by which it slows down."""
        self._reading(
            "npu_inference_temperature_readable",
            "0 where the service sees no temperature of the NPU, and so never slows down.",
            lambda: read() is not None,
        )

    def describe(self, description: Description) -> None:
        """Export what the backend tells of the model."""
        self._gauge(
            "npu_model_info",
            "The model that is served, always 1; version and runtime are those of the runtime.",
            ("model", "version", "quantization", "core_mask", "runtime"),
        ).labels(
            self._identity.model,
            description.version,
            description.quantization,
            self._identity.core_mask,
            description.runtime,
        ).set(1)
        if not description.operators:
            return
        told = [one for one in description.operators if one.kind not in perfdetail.TRANSFERS]
        where = self._gauge(
            "npu_inference_operators",
            "Operators of the model by where the runtime ran them; transfers are not among them.",
            (*_LABELS, "target"),
        )
        for target, number in (Tally(cpu=0, npu=0) + Tally(one.target for one in told)).items():
            where.labels(*self._values, target).set(number)
        slow = self._gauge(
            "npu_inference_cpu_operator_seconds",
            "Time of one run in operators of a kind that ran on the CPU.",
            (*_LABELS, "operator"),
        )
        for one in told:
            if one.target == "cpu":
                slow.labels(*self._values, one.kind).inc(one.seconds)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...] = _BUCKETS) -> Histogram:
        made = Histogram(name, text, _LABELS, buckets=buckets, registry=self.registry)
        return made.labels(*self._values)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...] = _LABELS) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _reading(self, name: str, text: str, read: Callable[[], float]) -> None:
        self._gauge(name, text).labels(*self._values).set_function(read)

"""An inference service: whether it is fast and keeps up, and whether the NPU is to blame."""

from ci.chart import Json
from ci.dashboards.frame import Row, dashboard, variable
from ci.dashboards.node import HOW_TO_READ_LOAD
from ci.dashboards.palette import BLUE, GREEN, ORANGE, VERMILION, heat, steps
from ci.dashboards.panels import (
    Values,
    fixed,
    heatmap,
    lines,
    number,
    override,
    table,
    text,
    timeline,
)
from ci.dashboards.query import RAW, RECORDED, line, rows

#: Recorded series of the service; scraped ones of it, whose job is the user's own.
OURS = f'{RECORDED}, namespace=~"$namespace", service_name=~"$service_name"'
#: Its Pods among the series of the platform.
NAMESPACE = 'namespace=~"$namespace"'
POD = "by (cluster, namespace, pod)"
BY = "by (cluster, namespace, service_name)"
SERVICE = "namespace_service:"


def _pods() -> str:
    """Return the Pods of the service."""
    return f"max {POD} (npu_inference_in_flight{{{OURS}}})"


def _nodes() -> str:
    """Return the nodes on which the service holds an NPU."""
    return (
        f"max by (cluster, node) (npu_device_allocation_info{{{RAW}, {NAMESPACE}}}"
        f" and on (cluster, namespace, pod) {_pods()})"
    )


def _quantile(quantile: float, metric: str) -> str:
    return (
        f"histogram_quantile({quantile}, sum by (le)"
        f" (rate({metric}_bucket{{{OURS}}}[$__rate_interval])))"
    )


def _percentiles(metric: str) -> list[tuple[str, str]]:
    return [(_quantile(part, metric), f"p{part * 100:.0f}") for part in (0.5, 0.95, 0.99)]


def _now() -> Row:
    return Row(
        title="Now",
        panels=[
            number(
                "Requests",
                "Answered requests per second.",
                [line(f"sum({SERVICE}npu_inference_requests:rate5m{{{OURS}}})", "requests")],
                Values(unit="reqps", empty="no requests", decimals=1),
                graph=True,
                width=4,
            ),
            number(
                "Errors",
                "Part of the answers with a code of 500 or more.",
                [
                    line(
                        f"max({SERVICE}npu_inference_errors_per_requests:ratio_rate5m{{{OURS}}})",
                        "errors",
                    )
                ],
                Values(
                    unit="percentunit",
                    empty="no requests",
                    low=0,
                    decimals=1,
                    thresholds=steps((0.01, ORANGE), (0.05, VERMILION)),
                ),
                graph=True,
                width=4,
            ),
            number(
                "Latency, p95",
                "95 % of the answers came faster.",
                [line(_quantile(0.95, "npu_inference_duration_seconds"), "p95")],
                Values(unit="s", empty="no requests", decimals=2),
                graph=True,
                width=4,
            ),
            number(
                "Waiting",
                "Requests that wait for the NPU, in all replicas. Autoscalers look at this.",
                [line(f"sum({SERVICE}npu_inference_queue_depth:sum{{{OURS}}})", "waiting")],
                Values(unit="short", empty="no service", decimals=0),
                graph=True,
                width=4,
            ),
            number(
                "Replicas",
                "Pods of the service that Prometheus sees.",
                [line(f"sum({SERVICE}npu_inference_replicas:count{{{OURS}}})", "replicas")],
                Values(unit="short", empty="no service", decimals=0),
                width=4,
            ),
            number(
                "Busy cores per replica",
                "Mean over the replicas that hold an NPU. Near 0 while requests are answered: the"
                " program computes on the CPU (NpuInferenceOnCpu).",
                [line(f"avg({SERVICE}npu_pod_core_busy_seconds:avg_rate1m{{{OURS}}})", "busy")],
                Values(unit="short", empty="holds no NPU", decimals=2),
                graph=True,
                width=4,
            ),
        ],
    )


def _requests() -> Row:
    return Row(
        title="Requests",
        panels=[
            lines(
                "Requests by code",
                "Answers per second by status code.",
                [
                    line(
                        "sum by (code) (rate(npu_inference_requests_total"
                        f"{{{OURS}}}[$__rate_interval]))",
                        "{{code}}",
                    )
                ],
                Values(unit="reqps", empty="no requests", low=0),
            ),
            lines(
                "Latency",
                "From request to answer, waiting included.",
                [line(*one) for one in _percentiles("npu_inference_duration_seconds")],
                Values(unit="s", empty="no requests", low=0),
                overrides=[fixed("p50", GREEN), fixed("p95", ORANGE), fixed("p99", VERMILION)],
            ),
            heatmap(
                "Latency of all requests",
                "How many requests took how long: two bands mean two kinds of requests, or"
                " replicas that differ.",
                [
                    line(
                        "sum by (le) (rate(npu_inference_duration_seconds_bucket"
                        f"{{{OURS}}}[$__rate_interval]))",
                        "{{le}}",
                    )
                ],
                Values(unit="s", empty="no requests"),
                bucket=None,
            ),
            lines(
                "Waiting time",
                "How long requests wait before they run. Long while cores are busy: more replicas;"
                " long while they are not: look at the program.",
                [line(*one) for one in _percentiles("npu_inference_queue_wait_seconds")],
                Values(unit="s", empty="no requests", low=0),
                overrides=[fixed("p50", GREEN), fixed("p95", ORANGE), fixed("p99", VERMILION)],
            ),
        ],
    )


def _scaling() -> Row:
    return Row(
        title="Keeping up",
        panels=[
            lines(
                "Waiting and running requests",
                "Requests that wait, and that run, in all replicas. A queue that only grows needs"
                " replicas, or is held by a quota.",
                [
                    line(f"sum({SERVICE}npu_inference_queue_depth:sum{{{OURS}}})", "waiting"),
                    line(f"sum(npu_inference_in_flight{{{OURS}}})", "running"),
                ],
                Values(unit="short", empty="no service", low=0),
                overrides=[fixed("waiting", ORANGE), fixed("running", BLUE)],
                width=8,
            ),
            lines(
                "What autoscalers look at, per replica",
                "Waiting requests and busy cores per replica, as recorded for KEDA and the"
                " HorizontalPodAutoscaler.",
                [
                    line(
                        f"avg({SERVICE}npu_inference_queue_depth:avg{{{OURS}}})", "waiting requests"
                    ),
                    line(
                        f"avg({SERVICE}npu_pod_core_busy_seconds:avg_rate1m{{{OURS}}})",
                        "busy cores",
                    ),
                ],
                Values(unit="short", empty="no service", low=0),
                overrides=[fixed("waiting requests", ORANGE), fixed("busy cores", GREEN)],
                width=8,
            ),
            lines(
                "Replicas over time",
                "Pods of the service, and Pods in its namespaces that wait for an NPU.",
                [
                    line(f"sum({SERVICE}npu_inference_replicas:count{{{OURS}}})", "running"),
                    line(
                        f"sum(namespace:npu_pods_pending:count{{{RECORDED}, {NAMESPACE}}})",
                        "waiting for an NPU",
                    ),
                ],
                Values(unit="short", empty="no service", low=0),
                overrides=[fixed("running", BLUE), fixed("waiting for an NPU", ORANGE)],
                width=8,
            ),
            lines(
                "Batch size",
                "Mean number of requests per run of the model.",
                [
                    line(
                        f"sum {BY} (rate(npu_inference_batch_size_sum{{{OURS}}}[$__rate_interval]))"
                        f" / sum {BY} (rate(npu_inference_batch_size_count{{{OURS}}}"
                        "[$__rate_interval]))",
                        "{{service_name}}",
                    )
                ],
                Values(unit="short", empty="no requests", low=0),
                width=8,
                height=7,
            ),
            text("How to read the load", HOW_TO_READ_LOAD, width=16, height=7),
        ],
    )


def _npu() -> Row:
    level = f"node:npu_heat_state:level{{{RECORDED}}}"
    return Row(
        title="Is it the NPU?",
        panels=[
            lines(
                "Busy cores by replica",
                "Busy cores of each Pod; a shared NPU is divided evenly. 30 to 40 % of the cores is"
                " normal for a program that waits for memory.",
                [
                    line(
                        f"namespace_service_pod:npu_pod_core_busy_seconds:rate1m{{{OURS}}}",
                        "{{pod}}",
                    )
                ],
                Values(unit="short", empty="No replica holds an NPU", low=0),
                width=8,
            ),
            lines(
                "Temperature of its nodes",
                "Of the nodes on which it holds an NPU.",
                [
                    line(
                        f"node:npu_temperature_celsius:max{{{RECORDED}}}"
                        f" and on (cluster, node) {_nodes()}",
                        "{{node}}",
                    )
                ],
                Values(unit="celsius", empty="No replica holds an NPU"),
                width=8,
            ),
            timeline(
                "Heat state of its nodes",
                "From hot on a node gets no new replica; the state is the reason.",
                [line(f"{level} and on (cluster, node) {_nodes()}", "{{node}}")],
                Values(unit="none", empty="No replica holds an NPU", mappings=heat()),
                width=8,
            ),
            lines(
                "Clock allowed",
                "Highest clock allowed over that of the hardware, on its nodes. Below 100 % the"
                " NPU is slower than it could be.",
                [
                    line(
                        "min by (cluster, node) (npu_frequency_max_hertz"
                        f"{{{RAW}}} / npu_frequency_hardware_max_hertz{{{RAW}}})"
                        f" and on (cluster, node) {_nodes()}",
                        "{{node}}",
                    )
                ],
                Values(unit="percentunit", empty="This driver tells no clock", low=0, high=1),
                overrides=[],
                width=8,
            ),
            table(
                "Replicas and their NPUs",
                "Where each replica runs, what it holds and how busy that is.",
                [
                    rows(
                        "max by (cluster, namespace, pod, node, device) (npu_device_allocation_info"
                        f"{{{RAW}, {NAMESPACE}}} and on (cluster, namespace, pod) {_pods()})"
                    ),
                    rows(f"namespace_service_pod:npu_pod_core_busy_seconds:rate1m{{{OURS}}}"),
                    rows(f"sum {POD} (npu_inference_queue_depth{{{OURS}}})"),
                ],
                {
                    "namespace": "Namespace",
                    "service_name": "Service",
                    "pod": "Pod",
                    "node": "Node",
                    "device": "NPU",
                    "Value #B": "Busy cores",
                    "Value #C": "Waiting",
                },
                empty="No replica holds an NPU",
                overrides=[override("Busy cores", decimals=2)],
                size=(16, 8),
            ),
            table(
                "Models",
                "What is loaded, and how long loading took.",
                [
                    rows(
                        "max by (namespace, pod, model, version, quantization, core_mask)"
                        f" (npu_model_info{{{RECORDED}, {NAMESPACE}}})"
                    ),
                    rows(
                        "max by (namespace, pod, model)"
                        f" (npu_model_load_seconds{{{RECORDED}, {NAMESPACE}}})"
                    ),
                ],
                {
                    "namespace": "Namespace",
                    "pod": "Pod",
                    "model": "Model",
                    "version": "Version",
                    "quantization": "Quantization",
                    "core_mask": "Core mask",
                    "Value #B": "Loading took",
                },
                empty="No service tells its models",
                overrides=[override("Loading took", unit="s", decimals=1)],
                size=(24, 6),
            ),
        ],
    )


def service() -> Json:
    """Return the dashboard."""
    return dashboard(
        "npu-service",
        "NPU inference services",
        "Requests, latency, queue and replicas of inference services, and the NPUs below them.",
        [_now(), _requests(), _scaling(), _npu()],
        variables=[
            variable("namespace", "Namespace", f"npu_inference_in_flight{{{RECORDED}}}"),
            variable(
                "service_name",
                "Service",
                f'npu_inference_in_flight{{{RECORDED}, namespace=~"$namespace"}}',
            ),
        ],
    )

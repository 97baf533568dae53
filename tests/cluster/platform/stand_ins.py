"""What a cluster with the platform usually also has: kube-state-metrics and an inference service.

The first tells the truth: it reads the API server's objects, and writes them with the documented
names and labels of kube-state-metrics. Only autoscalers are made up, for lack of a metrics server.
The second has the documented metrics of an inference service, for Pods that exist.
"""

import http.server
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ci.kube import Json, Kube

PHASES: Final = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
#: A service answers so many requests a second, each in so many seconds.
REQUESTS_PER_SECOND: Final = 5.0
REQUEST_SECONDS: Final = 0.08
_BUCKETS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 10.0)
_LABEL = re.compile(r"[^a-zA-Z0-9_]")


def sample(name: str, number: float, /, **labels: str) -> str:
    """Return a line of an exposition."""
    pairs = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{pairs}}} {number}"


def pods(items: Iterable[Json]) -> Iterator[str]:
    """Yield requests, phase and birth of Pods."""
    for pod in items:
        meta, spec = pod["metadata"], pod["spec"]
        who = {"namespace": meta["namespace"], "pod": meta["name"], "uid": meta["uid"]}
        phase = pod["status"].get("phase", "Unknown")
        for one in PHASES:
            yield sample("kube_pod_status_phase", float(one == phase), **who, phase=one)
        born = datetime.fromisoformat(meta["creationTimestamp"]).timestamp()
        yield sample("kube_pod_created", born, **who)
        for container in spec["containers"]:
            for resource, amount in container.get("resources", {}).get("requests", {}).items():
                # Resources with a domain are extended ones, which are counted in whole numbers.
                if "/" in resource:
                    yield sample(
                        "kube_pod_container_resource_requests",
                        float(amount),
                        **who,
                        container=container["name"],
                        node=spec.get("nodeName", ""),
                        resource=_LABEL.sub("_", resource),
                        unit="integer",
                    )


def nodes(items: Iterable[Json]) -> Iterator[str]:
    """Yield taints of Nodes."""
    for node in items:
        for taint in node["spec"].get("taints", []):
            yield sample(
                "kube_node_spec_taint",
                1,
                node=node["metadata"]["name"],
                key=taint["key"],
                value=taint.get("value", ""),
                effect=taint["effect"],
            )


def quotas(items: Iterable[Json]) -> Iterator[str]:
    """Yield limits and use of ResourceQuotas; the resource keeps its own spelling."""
    for quota in items:
        meta = quota["metadata"]
        for kind in ("hard", "used"):
            for resource, amount in quota["status"].get(kind, {}).items():
                if amount.isdigit():
                    yield sample(
                        "kube_resourcequota",
                        float(amount),
                        namespace=meta["namespace"],
                        resourcequota=meta["name"],
                        resource=resource,
                        type=kind,
                    )


def autoscaler(namespace: str, name: str, *, wants: int, has: int, most: int) -> Iterator[str]:
    """Yield what kube-state-metrics tells of a HorizontalPodAutoscaler."""
    who = {"namespace": namespace, "horizontalpodautoscaler": name}
    prefix = "kube_horizontalpodautoscaler"
    yield sample(f"{prefix}_status_desired_replicas", wants, **who)
    yield sample(f"{prefix}_status_current_replicas", has, **who)
    yield sample(f"{prefix}_spec_max_replicas", most, **who)


def inference(replicas: Mapping[tuple[str, str], str], seconds: float) -> Iterator[str]:
    """Yield the metrics of services that have run so long: (namespace, Pod) → service."""
    answered = seconds * REQUESTS_PER_SECOND
    for (namespace, pod), service in replicas.items():
        who = {"namespace": namespace, "pod": pod}
        served = who | {"service_name": service, "model": "yolo"}
        for code, part in (("200", 0.98), ("503", 0.02)):
            yield sample("npu_inference_requests_total", answered * part, **served, code=code)
        yield sample("npu_inference_queue_depth", 3, **served)
        yield sample("npu_inference_in_flight", 1, **served)
        for metric, each in (
            ("npu_inference_duration_seconds", REQUEST_SECONDS),
            ("npu_inference_queue_wait_seconds", REQUEST_SECONDS / 2),
            ("npu_inference_batch_size", 1),
        ):
            for limit in _BUCKETS:
                below = answered * (each <= limit)
                yield sample(f"{metric}_bucket", below, **served, le=str(limit))
            yield sample(f"{metric}_bucket", answered, **served, le="+Inf")
            yield sample(f"{metric}_sum", answered * each, **served)
            yield sample(f"{metric}_count", answered, **served)
        model = who | {"model": "yolo"}
        yield sample("npu_model_load_seconds", 1.5, **model)
        kind = {"version": "3", "quantization": "int8", "core_mask": "0_1_2"}
        yield sample("npu_model_info", 1, **model, **kind)


@dataclass(slots=True, kw_only=True)
class StandIns:
    """Both endpoints, served from this process: ``/kube-state-metrics`` and ``/inference``."""

    kube: Kube
    address: str
    port: int = 0
    replicas: Mapping[tuple[str, str], str]
    scalers: tuple[str, ...] = ()
    _state: str = ""
    _began: float = 0.0

    def look(self) -> None:
        """Read the API server's objects anew."""
        lines = [
            *pods(self.kube.items("pods", "-A")),
            *nodes(self.kube.items("nodes")),
            *quotas(self.kube.items("resourcequotas", "-A")),
            *self.scalers,
        ]
        self._state = "\n".join(lines) + "\n"

    @contextmanager
    def serving(self) -> Iterator[dict[str, str]]:
        """Serve; gives job → address with path."""
        self._began = time.monotonic()
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = owner.page(self.path).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        with http.server.ThreadingHTTPServer((self.address, self.port), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            base = f"{self.address}:{server.server_port}"
            try:
                yield {"kube-state-metrics": f"{base}/kube-state-metrics",
                       "inference": f"{base}/inference"}  # fmt: skip
            finally:
                server.shutdown()
                thread.join()

    def page(self, path: str) -> str:
        """Return an exposition."""
        if path == "/inference":
            lines = inference(self.replicas, time.monotonic() - self._began)
            return "\n".join(lines) + "\n"
        return self._state

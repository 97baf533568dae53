"""Autoscalers of Kubernetes alone, with the adapter's rules as docs/autoscaling.md has them."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import pytest
import yaml

from ci import chart, discovery, prometheus_adapter
from ci.demo.story import NAMESPACE, ROOT
from ci.kube import Json, until
from ci.patience import patient
from ci.prometheus import Prometheus
from tests.cluster.platform.installed import Platform

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(700)]

Measure = Callable[[str], None]

#: As in the files of docs/examples/walkthrough.
EXAMPLES: Final = ROOT / "docs/examples/walkthrough"
TEAM: Final = "team-vision"
SERVICE: Final = "detector"
QUOTA: Final = 3
QUEUE: Final = f'sum(npu_inference_queue_depth{{namespace="{TEAM}"}})'
METRICS: Final = {"npu_inference_queue_depth", "npu_inference_busy_cores"}


def recording_rules() -> Json:
    """Return the chart's rules, evaluated as often as is scraped here."""
    monitoring = {"enabled": True, "skipApiCheck": True, "rules": {"interval": "1s"}}
    objects = chart.objects(chart.render(values={"monitoring": monitoring}))
    (found,) = (item for item in objects if item["kind"] == "PrometheusRule")
    spec: Json = found["spec"]
    return spec


def autoscaling() -> Json:
    """Return the walkthrough's values for a plain autoscaler, which asks for busy cores, too."""
    values: Json = yaml.safe_load((EXAMPLES / "autoscaling.yaml").read_text())["autoscaling"]
    (service,) = values["services"]
    return {"kind": "hpa", "services": [service | {"busyRatio": 0.7, "coresPerReplica": 3}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A service with a plain autoscaler, and a Prometheus whose answers an adapter passes on."""

    platform: Platform
    prometheus: Prometheus

    def example(self, verb: str, name: str) -> None:
        """Apply or delete the objects of one of the walkthrough's files."""
        options = ("--ignore-not-found",) if verb == "delete" else ()
        self.platform.kube.kubectl(verb, *options, "-n", TEAM, "-f", str(EXAMPLES / name))

    def replicas(self) -> int:
        """Return how many replicas are wanted now."""
        number: int = self.platform.kube.get("deployment", SERVICE, "-n", TEAM)["spec"]["replicas"]
        return number

    def ready(self) -> int:
        """Return how many replicas serve."""
        deployment = self.platform.kube.get("deployment", SERVICE, "-n", TEAM)
        return int(deployment["status"].get("readyReplicas", 0))

    def adapters(self, number: int) -> None:
        """Set how many adapters there are."""
        name = f"deployment/{prometheus_adapter.NAME}"
        options = ("-n", prometheus_adapter.NAMESPACE, f"--replicas={number}")
        self.platform.kube.kubectl("scale", name, *options)

    def condition(self, kind: str) -> tuple[str, str]:
        """Return status and reason of a condition of the autoscaler."""
        status = self.platform.kube.get("hpa", SERVICE, "-n", TEAM).get("status", {})
        return next(
            ((c["status"], c["reason"]) for c in status.get("conditions", []) if c["type"] == kind),
            ("", ""),
        )

    def metrics_seen(self) -> set[str]:
        """Return the metrics of which the autoscaler has a value."""
        status = self.platform.kube.get("hpa", SERVICE, "-n", TEAM).get("status", {})
        return {
            one["external"]["metric"]["name"]
            for one in status.get("currentMetrics") or []
            if one.get("external", {}).get("current", {}).get("averageValue") is not None
        }


@pytest.fixture(scope="module")
def scene(platform: Platform) -> Iterator[Scene]:
    """A team with three NPUs, its service, the adapter, and the chart's HorizontalPodAutoscaler."""
    kube, cluster = platform.kube, platform.cluster
    prometheus = Prometheus.beside(cluster)
    for node in platform.boards:
        # Warm boards would close their nodes, and busy ones would keep replicas.
        platform.hold(node, 50.0, load=(0.1, 0.1, 0.1))
    prometheus.start([], scrape_seconds=1.0, rules=recording_rules())
    made = Scene(platform=platform, prometheus=prometheus)
    try:
        prometheus_adapter.install(
            cluster,
            kube,
            url=prometheus.url,
            rules=prometheus_adapter.documented_rules(),
            relist_seconds=10,
        )
        discovery.start(cluster)
        platform.change(f"--values={EXAMPLES / 'team.yaml'}")
        platform.offers("3")
        made.example("apply", "service.yaml")
        platform.change(f"--set-json=autoscaling={json.dumps(autoscaling())}")
        yield made
    finally:
        platform.install()
        kube.delete("namespace", TEAM, "--wait=false")
        prometheus_adapter.remove(kube)
        discovery.stop(cluster)
        prometheus.stop()
        for node in platform.boards:
            platform.release(node)
        platform.offers_whole()


def still(scene: Scene, seconds: float) -> None:
    """See that the number of replicas stays at the quota for so long."""
    until_then = time.monotonic() + patient(seconds)
    while time.monotonic() < until_then:
        assert scene.replicas() == QUOTA
        time.sleep(1)


def test_a_plain_autoscaler_follows_the_queue(scene: Scene, measure: Measure) -> None:
    """From one to the quota and not beyond, still without data, and back to one."""
    platform, prometheus = scene.platform, scene.prometheus
    until(lambda: scene.replicas() == 1 and scene.ready() == 1, seconds=90, what="one serves")
    until(scene.metrics_seen, lambda seen: seen == METRICS, seconds=120, what="both metrics")
    assert scene.condition("ScalingActive") == ("True", "ValidMetricFound")

    began = time.monotonic()
    scene.example("apply", "load.yaml")
    until(
        partial(prometheus.value, QUEUE),
        lambda seen: seen is not None and seen > 4,
        seconds=60,
        what="requests wait",
    )
    until(scene.replicas, lambda seen: seen == QUOTA, seconds=120, what="as many as the quota")
    until(scene.ready, lambda seen: seen == QUOTA, seconds=60, what="all of them serve")
    measure(f"plain autoscaler: 1 to {QUOTA} replicas serving in {time.monotonic() - began:.0f} s")
    until(
        partial(scene.condition, "ScalingLimited"),
        lambda seen: seen == ("True", "TooManyReplicas"),
        seconds=45,
        what="the autoscaler is at its most",
    )
    assert scene.replicas() == QUOTA

    # The queue empties unseen: taken for 0, no data would end replicas.
    discovery.stop(platform.cluster)
    prometheus.scrape(platform.kube.items("pods", "-n", NAMESPACE))
    scene.example("delete", "load.yaml")
    until(
        partial(scene.condition, "ScalingActive"),
        lambda seen: seen == ("False", "FailedGetExternalMetric"),
        seconds=90,
        what="the autoscaler misses its metrics",
    )
    # Longer than the adapter takes to forget the metrics: first it has no value, then no metric.
    still(scene, 45)

    # Nor does an empty queue follow from a Prometheus or an adapter that is gone. Kubernetes asks
    # every 15 seconds.
    prometheus.stop()
    still(scene, 20)
    scene.adapters(0)
    still(scene, 20)
    scene.adapters(1)
    prometheus.start([], scrape_seconds=1.0, rules=recording_rules())

    discovery.start(platform.cluster)
    began = time.monotonic()
    until(scene.replicas, lambda seen: seen == 1, seconds=240, what="one is enough")
    measure(f"plain autoscaler: {QUOTA} to 1 replicas in {time.monotonic() - began:.0f} s")

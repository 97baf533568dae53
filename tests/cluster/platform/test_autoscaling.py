"""A real autoscaler follows the real queue of a real service, through a real Prometheus."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pytest
import yaml

from ci import keda_install
from ci.demo.story import NAMESPACE, RESOURCE, ROOT
from ci.kube import Json, until
from ci.patience import patient
from ci.prometheus import Prometheus
from tests.cluster.platform.installed import COMPONENT, Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

Measure = Callable[[str], None]

TEAM: Final = "team-scaled"
SERVICE: Final = "detector"
QUOTA: Final = 3
#: Every client asks again as soon as it has its answer: so many requests are under way.
CLIENTS: Final = 16
LOAD: Final = f"""
import http.client, os, threading, time
def ask():
    while True:
        try:
            to = http.client.HTTPConnection(os.environ["DETECTOR_SERVICE_HOST"], 80, timeout=60)
            to.request("POST", "/v1/infer", b"abcd")
            to.getresponse().read()
            to.close()
        except OSError:
            time.sleep(0.5)
for _ in range({CLIENTS}):
    threading.Thread(target=ask).start()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The platform with KEDA, a Prometheus and a service to scale."""

    platform: Platform
    prometheus: Prometheus

    def pods(self) -> list[Json]:
        """Return the Pods of the service."""
        return self.platform.kube.items("pods", "-n", TEAM, "-l", f"app={SERVICE}")

    def replicas(self) -> int:
        """Return how many replicas are wanted now, after telling Prometheus of all there are."""
        self.prometheus.scrape(self.platform.kube.items("pods", "-n", NAMESPACE), self.pods())
        return self.wanted()

    def wanted(self) -> int:
        """Return how many replicas are wanted now."""
        number: int = self.platform.kube.get("deployment", SERVICE, "-n", TEAM)["spec"]["replicas"]
        return number

    def ready(self) -> int:
        """Return how many replicas serve."""
        deployment = self.platform.kube.get("deployment", SERVICE, "-n", TEAM)
        return int(deployment["status"].get("readyReplicas", 0))

    def condition(self, kind: str) -> str:
        """Return the status of a condition of the ScaledObject."""
        found = self.platform.kube.get("scaledobject", SERVICE, "-n", TEAM).get("status", {})
        return next((c["status"] for c in found.get("conditions", []) if c["type"] == kind), "")


def service() -> list[Json]:
    """Return the documented example with a backend that needs no model."""
    deployment, address = yaml.safe_load_all((ROOT / "docs/examples/yolov8.yaml").read_text())
    pod = deployment["spec"]["template"]
    pod["metadata"]["labels"][COMPONENT] = "inference"
    spec = pod["spec"]
    del spec["nodeSelector"], spec["volumes"]
    (container,) = spec["containers"]
    del container["volumeMounts"]
    container["args"] = [
        *(f"--service-name={SERVICE}", "--backend=simulated", "--simulated-seconds=0.8"),
        *("--workers=1", "--timeout=60", "--drain=0.5"),
    ]
    container["resources"]["requests"] = {"cpu": "10m"}
    return [deployment, address]


def load() -> Json:
    """Return a Pod with clients; it has no NPU and takes the service's address from its env."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "load"},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "load",
                    "image": "localhost/npu-platform/inference:0.1.0-dev",
                    "command": ["/usr/bin/python3.13", "-I", "-c", LOAD],
                }
            ],
        },
    }


@pytest.fixture(scope="module")
def scene(platform: Platform) -> Iterator[Scene]:
    """Six shares of NPUs, three of which are the team's; windows of seconds."""
    kube = platform.kube
    prometheus = Prometheus.beside(platform.cluster)
    for node in platform.boards:
        # Warm boards would close their nodes.
        platform.hold(node, 50.0, load=(0.1, 0.1, 0.1))
    keda_install.install(platform.cluster, kube)
    try:
        pace = {"pods": 2, "periodSeconds": 15}
        scaled = {
            "namespace": TEAM,
            "name": SERVICE,
            "maxReplicas": 10,
            "busyRatio": 0,
            "pollingSeconds": 2,
            "scaleUp": pace,
            "scaleDown": pace | {"stabilizationSeconds": 5},
        }
        quota = {
            "namespace": TEAM,
            "createNamespace": True,
            "hard": {f"requests.{RESOURCE}": QUOTA},
        }
        platform.change(
            "--set=plugin.sharing.slots=3",
            f"--set-json=quotas={json.dumps([quota])}",
        )
        platform.offers("3")
        prometheus.start(kube.items("pods", "-n", NAMESPACE), scrape_seconds=1.0)
        for item in service():
            kube.kubectl("apply", "-n", TEAM, "-f", "-", stdin=json.dumps(item))
        # With the service, as an autoscaler without data would not move anyway.
        platform.change(
            f"--set-json=autoscaling.services={json.dumps([scaled])}",
            f"--set=autoscaling.prometheus.serverAddress={prometheus.url}",
        )
        yield Scene(platform=platform, prometheus=prometheus)
    finally:
        platform.change(
            "--set-json=autoscaling.services=[]",
            "--set-json=quotas=[]",
            "--set=plugin.sharing.slots=1",
        )
        kube.delete("namespace", TEAM, "--wait=false")
        keda_install.remove(kube)
        prometheus.stop()
        for node in platform.boards:
            platform.release(node)
        platform.offers_whole()


def test_replicas_follow_the_queue(scene: Scene, measure: Measure) -> None:
    """From one to the quota and not beyond, still without data, and back to one."""
    kube = scene.platform.kube
    until(lambda: scene.replicas() == 1 and scene.ready() == 1, seconds=60, what="one serves")
    until(lambda: scene.condition("Ready") == "True", seconds=60, what="KEDA watches it")

    began = time.monotonic()
    kube.kubectl("apply", "-n", TEAM, "-f", "-", stdin=json.dumps(load()))
    until(
        lambda: scene.prometheus.value(f'sum(npu_inference_queue_depth{{namespace="{TEAM}"}})'),
        lambda seen: seen is not None and seen > 4,
        seconds=60,
        what="requests wait",
    )
    until(scene.replicas, lambda seen: seen == QUOTA, seconds=90, what="as many as the quota")
    until(scene.ready, lambda seen: seen == QUOTA, seconds=60, what="all of them serve")
    measure(f"autoscaling: 1 to {QUOTA} replicas serving in {time.monotonic() - began:.0f} s")

    # More is wanted than the quota has room for.
    until(
        lambda: kube.get("hpa", f"keda-hpa-{SERVICE}", "-n", TEAM)["status"]["conditions"],
        lambda seen: any(c["type"] == "ScalingLimited" and c["status"] == "True" for c in seen),
        seconds=45,
        what="the autoscaler is at its most",
    )
    assert scene.replicas() == QUOTA

    # The queue empties unseen: taken for 0, no data would end two replicas.
    scene.prometheus.scrape(kube.items("pods", "-n", NAMESPACE))
    kube.delete("pod", "load", "-n", TEAM, "--grace-period=0", "--force")
    until(lambda: scene.condition("Fallback") == "True", seconds=150, what="KEDA misses the metric")
    still_until = time.monotonic() + patient(30)
    while time.monotonic() < still_until:
        assert scene.wanted() == QUOTA
        time.sleep(1)

    began = time.monotonic()
    until(scene.replicas, lambda seen: seen == 1, seconds=120, what="one is enough")
    measure(f"autoscaling: {QUOTA} to 1 replicas in {time.monotonic() - began:.0f} s")

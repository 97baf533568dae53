"""A newcomer's walk from a team's share to a service that grows, as docs/walkthrough.md has it.

A real autoscaler follows the real queue of a real service, through a real Prometheus.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pytest

from ci import discovery, keda_install
from ci.demo import autoscale, shell
from ci.demo.report import Report
from ci.demo.story import NAMESPACE, ROOT
from ci.kube import Json, until
from ci.patience import patient
from ci.prometheus import Prometheus
from tests.cluster.platform.installed import Platform
from tests.cluster.platform.modes import Mode
from tests.cluster.platform.visitor import Visitor

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(480)]

Measure = Callable[[str], None]

#: As in the files of docs/examples/walkthrough.
TEAM: Final = "team-vision"
SERVICE: Final = "detector"
QUOTA: Final = 3
#: Beginnings of commands on the page that the walk here does without: the demonstration's cluster,
#: for which this one stands, and what never ends.
NOT_TYPED: Final = ("make ", "eval ", "kubectl --namespace team-vision get hpa --watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The platform with KEDA, a Prometheus, and a visitor with a service to scale."""

    platform: Platform
    prometheus: Prometheus
    visitor: Visitor

    def replicas(self) -> int:
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

    def pods(self) -> list[Json]:
        """Return the Pods of the service."""
        return self.platform.kube.items("pods", "-n", TEAM, "-l", f"app={SERVICE}")

    def platform_pods(self) -> list[Json]:
        """Return the Pods of the platform."""
        return self.platform.kube.items("pods", "-n", NAMESPACE)


@contextmanager
def staged(mode: Mode) -> Iterator[Scene]:
    """What `make demo-autoscale` adds, and the page's steps until the service may grow."""
    platform = mode.platform
    kube, cluster = platform.kube, platform.cluster
    prometheus = Prometheus.beside(cluster)
    for node in platform.boards:
        # Warm boards would close their nodes.
        platform.hold(node, 50.0, load=(0.1, 0.1, 0.1))
    prometheus.start([], scrape_seconds=1.0)
    try:
        autoscale.add(cluster, Report())
        visitor = Visitor(
            page=ROOT / "docs/walkthrough.md",
            environment=shell.environment(shell.variables(cluster), os.environ),
        )
        visitor.types("walkthrough/team.yaml")
        mode.offers(3)
        visitor.types("walkthrough/service.yaml")
        visitor.types("rollout status")
        visitor.types("walkthrough/autoscaling.yaml")
        yield Scene(platform=platform, prometheus=prometheus, visitor=visitor)
    finally:
        # Before the values of all other tests: a driver takes claims back, and has to be there.
        kube.delete("namespace", TEAM, "--ignore-not-found", seconds=120)
        platform.install()
        keda_install.remove(kube)
        discovery.stop(cluster)
        prometheus.stop()
        for node in platform.boards:
            platform.release(node)
        platform.offers_whole()


@pytest.fixture(scope="module")
def scene(platform: Platform) -> Iterator[Scene]:
    """The platform as everybody has it who chose nothing."""
    with staged(Mode("devicePlugin", platform)) as scene:
        yield scene


def test_replicas_follow_the_queue(scene: Scene, measure: Measure) -> None:
    """From one to the quota and not beyond, still without data, and back to one."""
    walk(scene, measure)


def walk(scene: Scene, measure: Measure) -> None:
    """Go on as the page does, and look at what it promises."""
    types = scene.visitor.types
    until(lambda: scene.replicas() == 1 and scene.ready() == 1, seconds=60, what="one serves")
    until(lambda: scene.condition("Ready") == "True", seconds=60, what="KEDA watches it")
    assert f"requests.rockchip.com/npu  1     {QUOTA}" in types("describe quota")
    assert f"keda-hpa-{SERVICE}" in types("get scaledobject,hpa")

    began = time.monotonic()
    types("apply -f docs/examples/walkthrough/load.yaml")
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
        lambda: types("describe hpa"),
        lambda seen: re.search(r"ScalingLimited +True +TooManyReplicas", seen) is not None,
        seconds=45,
        what="the autoscaler is at its most",
    )
    assert scene.replicas() == QUOTA
    assert " with 200" in types("logs load")
    assert types("kubectl npu who").count(SERVICE) >= QUOTA

    types("walkthrough/batch.yaml")
    until(
        lambda: types("kubectl npu why"),
        lambda seen: "exceeded quota: npu" in seen,
        seconds=40,
        what="the team's job is refused, and told why",
    )

    # The queue empties unseen: taken for 0, no data would end replicas.
    discovery.stop(scene.platform.cluster)
    scene.prometheus.scrape(scene.platform_pods())
    types("delete pod load")
    until(lambda: scene.condition("Fallback") == "True", seconds=150, what="KEDA misses the metric")
    still_until = time.monotonic() + patient(30)
    while time.monotonic() < still_until:
        assert scene.replicas() == QUOTA
        time.sleep(1)

    discovery.start(scene.platform.cluster)
    began = time.monotonic()
    until(scene.replicas, lambda seen: seen == 1, seconds=120, what="one is enough")
    measure(f"autoscaling: {QUOTA} to 1 replicas in {time.monotonic() - began:.0f} s")
    until(
        lambda: types("get job nightly"),
        lambda seen: "Complete" in seen,
        seconds=120,
        what="the job has had its NPU",
    )
    assert {one for one in scene.visitor.left_out() if not one.startswith(NOT_TYPED)} == set()

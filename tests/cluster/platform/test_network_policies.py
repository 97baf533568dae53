"""The chart's NetworkPolicies with real traffic, enforced by the controller that k3s carries."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import pytest
import yaml

from ci import kube_router
from ci.cluster.instance import registry
from ci.command import CommandError
from ci.demo.story import NAMESPACE, RELEASE, sample_pod
from ci.kube import Json, until
from tests.cluster.platform.installed import (
    COMPONENT,
    COOL,
    HOT,
    Platform,
    npu_pod,
    without_npu,
)
from tests.cluster.platform.modes import Mode

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(600)]

PYTHON: Final = "/usr/bin/python3.13"
MONITORING: Final = "monitoring"
ELSEWHERE: Final = "elsewhere"
COMPONENTS: Final = ("plugin", "exporter", "guard", "simulator")
#: Prints which of its arguments (HOST:PORT) take a connection.
KNOCK: Final = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor

def takes(target):
    host, _, port = target.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
    except OSError:
        return False
    return True

targets = sys.argv[1:]
with ThreadPoolExecutor(len(targets)) as pool:
    print(json.dumps([t for t, open in zip(targets, pool.map(takes, targets)) if open]))
"""
#: Takes connections on port 8080 and says nothing.
LISTEN: Final = """
import socket

server = socket.create_server(("", 8080), backlog=64)
while True:
    server.accept()[0].close()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The platform on a cluster that enforces policies, and Pods of two other namespaces."""

    platform: Platform
    api: str
    """Address of the API server, from which requests through it come."""

    def change(self, **settings: object) -> None:
        """Change the policies of the release."""
        options = (f"--set-json=networkPolicies.{k}={json.dumps(v)}" for k, v in settings.items())
        self.platform.change(*options)

    def targets(self) -> dict[str, str]:
        """Return HOST:8080 of each Pod of the platform and of the two others: address → name."""
        found = {}
        for namespace in (NAMESPACE, MONITORING, ELSEWHERE):
            for pod in self.platform.kube.items("pods", "-n", namespace):
                labels, status = pod["metadata"].get("labels", {}), pod["status"]
                name = labels.get(COMPONENT, namespace)
                wanted = namespace != NAMESPACE or name in COMPONENTS
                if wanted and status["phase"] == "Running" and status.get("podIP"):
                    found[f"{status['podIP']}:8080"] = name
        return found

    def reached(self, namespace: str, pod: str) -> set[str]:
        """Return what a Pod reaches: components, the two other namespaces, the API server.

        Where it reaches some Pods of a component and others not, the word before says so.
        """
        targets = self.targets() | {f"{self.api}:6443": "api"}
        own = self.platform.kube.get("pod", pod, "-n", namespace)["status"]["podIP"]
        targets.pop(f"{own}:8080", None)
        command = ("exec", "-n", namespace, pod, "--", PYTHON, "-I", "-c", KNOCK, *targets)
        taken = set(json.loads(self.platform.kube.kubectl(*command)))
        closed = {name for address, name in targets.items() if address not in taken}
        reached = {targets[address] for address in taken}
        return {f"some {name}" if name in closed else name for name in reached}

    def reached_by(self, component: str) -> set[str]:
        """Return what a Pod of a component reaches."""
        pods = self.platform.kube.items("pods", "-n", NAMESPACE, "-l", f"{COMPONENT}={component}")
        return self.reached(NAMESPACE, pods[0]["metadata"]["name"])

    def page(self) -> str:
        """Return an exporter's page through the API server, empty where it cannot be reached."""
        node = self.platform.boards[0]
        try:
            return self.platform.kube.pod_http(self.platform.component("exporter", node), "/")
        except CommandError:
            return ""


def _listener(namespace: str) -> Json:
    """Return a Pod that listens, and from which to knock."""
    pod = without_npu(sample_pod(name="visitor"))
    pod["metadata"]["namespace"] = namespace
    container = pod["spec"]["containers"][0]
    container.pop("args", None)
    container["command"] = [PYTHON, "-I", "-c", LISTEN]
    return pod


@pytest.fixture(scope="module")
def scene(platform: Platform) -> Iterator[Scene]:
    """Pods of a Prometheus's namespace and of another, all of which reach everything."""
    instance = registry().read(platform.cluster.name)
    assert instance is not None
    made = Scene(platform=platform, api=str(instance.plan.api_address))
    kube = platform.kube
    for namespace in (MONITORING, ELSEWHERE):
        kube.kubectl("create", "namespace", namespace)
        until(
            partial(kube.items, "serviceaccounts", "-n", namespace),
            seconds=30,
            what=f"an account in {namespace}",
        )
        kube.kubectl("create", "-f", "-", stdin=yaml.safe_dump(_listener(namespace)))
    for node in platform.boards:
        platform.hold(node, COOL)
    kube_router.start(platform.cluster)
    everything = {*COMPONENTS, MONITORING, ELSEWHERE, "api"}
    for namespace in (MONITORING, ELSEWHERE):
        until(
            partial(kube.get, "pod", "visitor", "-n", namespace),
            _ready,
            seconds=60,
            what=f"a visitor in {namespace}",
        )
        until(
            partial(made.reached, namespace, "visitor"),
            (everything - {namespace}).__eq__,
            seconds=60,
            what=f"everything reached from {namespace}",
        )
    for component in COMPONENTS:
        assert everything - {component} <= made.reached_by(component), "nothing else keeps them"
    # All but the sources through the API server, with which the tests of a platform look.
    made.change(enabled=True)
    yield made
    made.change(enabled=False)
    for node in platform.boards:
        platform.release(node)
    kube.delete("namespace", MONITORING, ELSEWHERE, "--wait=false")


def test_only_those_named_get_in(scene: Scene) -> None:
    """Prometheus's namespace reaches each component, another none, the API server on request."""
    until(
        lambda: scene.reached(ELSEWHERE, "visitor"),
        lambda seen: seen == {MONITORING, "api"},
        seconds=60,
        what="a stranger is kept out",
    )
    assert scene.reached(MONITORING, "visitor") == {*COMPONENTS, ELSEWHERE, "api"}

    assert scene.page() == ""
    scene.change(ingressFrom=[{"ipBlock": {"cidr": f"{scene.api}/32"}}])
    until(scene.page, seconds=60, what="an exporter's page through the API server")
    assert scene.reached(ELSEWHERE, "visitor") == {MONITORING, "api"}


def test_components_call_nobody_but_whom_they_need(scene: Scene) -> None:
    """Node daemons nobody, the guard the API server and the exporters."""
    needed: dict[str, set[str]] = {component: set() for component in COMPONENTS}
    needed["guard"] = {"api", "exporter"}
    for component, only in needed.items():
        until(
            partial(scene.reached_by, component),
            only.__eq__,
            seconds=60,
            what=f"{component} reaches {only or 'nobody'}",
        )


def test_the_platform_works_behind_them(scene: Scene) -> None:
    """Probes come through, heat closes a node and cooling opens it, the chart's tests pass."""
    platform = scene.platform
    kube, node = platform.kube, platform.boards[0]
    for component in ("exporter", "plugin"):
        before = platform.component(component, node)["metadata"]["name"]
        # Its address is free before the new one starts.
        kube.delete("pod", before, "-n", NAMESPACE)
        until(
            partial(platform.component, component, node),
            _ready,
            seconds=90,
            what=f"a new {component} that is ready",
        )
    platform.offers()

    platform.hold(node, HOT)
    platform.await_hot(node, hot=True, seconds=90)
    platform.hold(node, COOL)
    platform.await_hot(node, hot=False, seconds=120)

    platform.change("--set=ghosts.enabled=true")
    job = ("job", "ghosts-now", "-n", NAMESPACE)
    cron = kube.items("cronjobs", "-n", NAMESPACE)[0]["metadata"]["name"]
    kube.kubectl("create", *job, f"--from=cronjob/{cron}")
    until(
        lambda: kube.get(*job)["status"].get("succeeded"),
        lambda count: count == 1,
        seconds=90,
        what="the search for ghosts has asked the API server",
    )
    kube.helm("test", RELEASE, f"--namespace={NAMESPACE}", "--timeout=200s", seconds=240)
    platform.change("--set=ghosts.enabled=false")


def test_mode_dra_works_behind_them(scene: Scene) -> None:
    """The guard reads the plugins' devices, too, and Pods get them by claims."""
    platform = scene.platform
    platform.change("--set=plugin.mode=dra")
    Mode("dra", platform).offers()
    until(
        partial(scene.reached_by, "guard"),
        {"api", "exporter", "plugin"}.__eq__,
        seconds=60,
        what="the guard reaches the plugins",
    )
    assert scene.reached_by("plugin") == set()
    with platform.pod(npu_pod("npu-claims")) as pod:
        assert pod["status"]["extendedResourceClaimStatus"]
    platform.change("--set=plugin.mode=devicePlugin")
    platform.offers()


def _ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

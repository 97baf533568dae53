"""Services of one replica: a power cut of their board, and an upgrade on a full cluster."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import pytest

from ci.demo.story import RESOURCE
from ci.kube import Json, until
from tests.cluster.platform.installed import Platform, npu_pod

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

RECREATE: Final = {"type": "Recreate"}
NO_SURGE: Final = {
    "type": "RollingUpdate",
    "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
}


@contextmanager
def _service(platform: Platform, name: str, node: str, strategy: Json) -> Iterator[str]:
    """Run a Deployment of one replica with an NPU on ``node``; gives its name."""
    pod = npu_pod(name, node)
    spec = pod["spec"] | {"restartPolicy": "Always"}
    labels = {"app": name}
    platform.kube.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "replicas": 1,
                "strategy": strategy,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
    )
    try:
        _await_ready(platform, name)
        yield name
    finally:
        platform.kube.delete("deployment", name, "-n", "default", "--cascade=foreground")
        platform.kube.delete("pods", "-n", "default", "-l", f"app={name}", "--grace-period=1")


def _pods(platform: Platform, name: str) -> list[Json]:
    return platform.kube.items("pods", "-n", "default", "-l", f"app={name}")


def _ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", [])
    return "deletionTimestamp" not in pod["metadata"] and any(
        c["type"] == "Ready" and c["status"] == "True" for c in conditions
    )


def _await_ready(platform: Platform, name: str, *, other_than: str | None = None) -> Json:
    """Wait until the service has a ready Pod, perhaps a new one, and return it."""
    return until(
        lambda: next(
            (
                pod
                for pod in _pods(platform, name)
                if _ready(pod) and pod["metadata"]["uid"] != other_than
            ),
            None,
        ),
        seconds=180,
        what=f"a ready Pod of {name}",
    )


def test_service_is_back_after_a_power_cut(
    platform: Platform, measure: Callable[[str], None]
) -> None:
    """The kubelet rejects the old Pod, which no device plugin can prevent; a new one runs."""
    node = platform.boards[0]
    with _service(platform, "npu-service", node, RECREATE) as name:
        before = _await_ready(platform, name)
        platform.cluster.stop_node(node)
        platform.cluster.start_node(node)
        start = time.monotonic()
        platform.offers()
        offered = time.monotonic() - start
        after = _await_ready(platform, name, other_than=before["metadata"]["uid"])
        measure(
            f"power cut: kubelet serves -> NPU offered {offered:.1f} s, "
            f"service ready {time.monotonic() - start:.1f} s"
        )
        rejected = [
            pod["status"].get("reason")
            for pod in _pods(platform, name)
            if pod["metadata"]["uid"] != after["metadata"]["uid"]
            and pod["status"].get("phase") == "Failed"
        ]
        assert set(rejected) <= {"UnexpectedAdmissionError", "NodeShutdown", "Terminated"}
        assert after["spec"]["nodeName"] == node


def test_upgrade_on_a_full_cluster(platform: Platform, measure: Callable[[str], None]) -> None:
    """With every NPU in use, Recreate and maxSurge 0 both come through."""
    services = dict(zip(("npu-recreate", "npu-no-surge"), (RECREATE, NO_SURGE), strict=True))
    with ExitStack() as running:
        for (name, strategy), node in zip(services.items(), platform.boards, strict=True):
            running.enter_context(_service(platform, name, node, strategy))
        free = {node: count for node, count in platform.kube.allocatable(RESOURCE).items() if count}
        assert sum(map(int, free.values())) == len(services), "the cluster has an NPU to spare"
        for name in services:
            before = _await_ready(platform, name)["metadata"]["uid"]
            start = time.monotonic()
            platform.kube.kubectl("set", "env", f"deployment/{name}", "-n", "default", "RELEASE=2")
            _await_ready(platform, name, other_than=before)
            measure(f"upgrade of {name}: {time.monotonic() - start:.1f} s")

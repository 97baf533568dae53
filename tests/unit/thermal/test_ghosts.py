"""Which Pods are ghosts of a reboot, and what happens to them."""

import pytest

from thermal.api import Listing, Query
from thermal.errors import ConflictError, ForbiddenError
from thermal.ghosts import PODS, REASON, ghosts, sweep
from thermal.objects import Json

NPU = "rockchip.com/npu"
MESSAGE = (
    "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate"
    " unhealthy devices {}, which is unexpected"
)


def pod(
    name: str = "p",
    *,
    resource: str = NPU,
    phase: str = "Failed",
    reason: str = REASON,
    told: str | None = None,
    controller: bool = True,
) -> Json:
    """Return a Pod as the API server tells it."""
    owners = [{"kind": "ReplicaSet", "controller": True}] if controller else []
    return {
        "metadata": {
            "name": name,
            "namespace": "a",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "ownerReferences": owners,
        },
        "spec": {"containers": [{"resources": {"limits": {resource: "1"}}}]},
        "status": {"phase": phase, "reason": reason, "message": MESSAGE.format(told or resource)},
    }


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (pod(), True),
        (pod(resource=f"{NPU}.shared"), True),
        (pod(resource="nvidia.com/gpu"), False),
        (pod(told="nvidia.com/gpu"), False),
        (pod(phase="Running"), False),
        (pod(reason="Evicted"), False),
        (pod(controller=False), False),
        ({}, False),
        ({"status": {"phase": "Failed", "reason": REASON, "message": None}}, False),
    ],
)
def test_only_failed_for_want_of_an_npu(item: Json, *, expected: bool) -> None:
    """Phase, reason, the resource in the message and in the Pod, and a controller: all of them."""
    assert bool(list(ghosts([item], [NPU], without_controller=False))) is expected


def test_bare_pods_are_taken_on_request() -> None:
    """They are somebody's only record, so it takes a switch."""
    bare = pod(controller=False)
    assert list(ghosts([bare], [NPU], without_controller=True)) == [bare]


class Cluster:
    """Pods, of which some cannot be deleted."""

    def __init__(self, *pods: Json) -> None:
        self.pods = pods
        self.deleted: list[tuple[str, str, str]] = []

    def list(self, path: str, query: Query | None = None) -> Listing:
        """Return all Pods, as asked for."""
        assert (path, query) == (PODS, {"fieldSelector": "status.phase=Failed"})
        return Listing(items=self.pods, resource_version="9")

    def delete(self, path: str, *, uid: str, resource_version: str) -> None:
        """Refuse by name."""
        if path.endswith("/changed"):
            raise ConflictError("DELETE", 409, "the Pod changed")
        if path.endswith("/kept"):
            raise ForbiddenError("DELETE", 403, "no")
        self.deleted.append((path, uid, resource_version))


def test_the_pod_that_was_judged_is_deleted() -> None:
    """One that changed meanwhile stays, one that may not be deleted is counted."""
    cluster = Cluster(pod("gone"), pod("changed"), pod("kept"), pod("run", phase="Running"))

    report = sweep(cluster, [NPU], without_controller=False)

    assert (report.deleted, report.failed) == (1, 1)
    assert cluster.deleted == [("/api/v1/namespaces/a/pods/gone", "uid-gone", "7")]

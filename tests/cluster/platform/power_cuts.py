"""Workloads on a board that loses its power, one of each kind."""

from ci.kube import Json
from tests.cluster.platform.installed import Platform, events, npu_pod


def workloads(node: str) -> list[Json]:
    """Return one of each kind for a node, ``cut-`` and the kind in small letters their names."""

    def meta(name: str) -> Json:
        return {"name": f"cut-{name}", "namespace": "default", "labels": {"cut": name}}

    def template(name: str, **changes: object) -> Json:
        spec = npu_pod("x", node)["spec"] | {"terminationGracePeriodSeconds": 1} | changes
        return {"metadata": {"labels": {"cut": name}}, "spec": spec}

    def selected(name: str) -> Json:
        return {"matchLabels": {"cut": name}}

    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta("deployment"),
            "spec": {
                "strategy": {"type": "Recreate"},
                "selector": selected("deployment"),
                "template": template("deployment", restartPolicy="Always"),
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": meta("statefulset"),
            "spec": {
                "serviceName": "none",
                "selector": selected("statefulset"),
                "template": template("statefulset", restartPolicy="Always"),
            },
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": meta("job"),
            "spec": {"template": template("job", restartPolicy="OnFailure")},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta("pod"),
            "spec": template("pod", restartPolicy="Always")["spec"],
        },
    ]


def running(platform: Platform, name: str) -> dict[tuple[str, int], Json]:
    """Return Pods of a workload whose container runs, by UID and number of restarts."""
    found = {}
    for pod in platform.kube.items("pods", "-n", "default", "-l", f"cut={name}"):
        for status in pod["status"].get("containerStatuses", []):
            if "running" in status.get("state", {}) and "deletionTimestamp" not in pod["metadata"]:
                found[(pod["metadata"]["uid"], status["restartCount"])] = pod
    return found


def allocated_id(platform: Platform, pod: str) -> str:
    """Return the identifier of the NPU that a Pod got."""
    report = events(platform, pod, seconds=30)
    return str(
        next(e["variables"] for e in report if e["event"] == "environment")["NPU_DEVICE_IDS"]
    )

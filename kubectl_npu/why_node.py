"""``kubectl npu why NODE``: why a node takes no NPU Pods or offers none, with what to do. Pure."""

from collections.abc import Iterator

from kubectl_npu.claims import runtime, serves_claims
from kubectl_npu.client import Json
from kubectl_npu.finding import Finding, fail, ok, warn
from kubectl_npu.picture import (
    OWN_TAINTS,
    Picture,
    counts,
    free,
    full_name,
    holds,
    is_ready,
    listed,
    name_of,
    requests,
)
from kubectl_npu.placement import closing_taints, taint_text
from kubectl_npu.why_pod import heat

_PLUGIN = "app.kubernetes.io/component"
_HOLD = f"{OWN_TAINTS}hold-until"
_DECISIONS = 3
_NOBODY: Json = {"metadata": {}, "spec": {}}


def explain(node: Json, picture: Picture) -> Iterator[Finding]:
    """Yield what keeps NPU Pods away from a node, and what it offers."""
    name = name_of(node)
    if not is_ready(node):
        yield fail("node", f"{name} is not Ready", f"`kubectl describe node {name}`")
    yield from _taints(node, picture)
    if any(serves_claims(pod) and holds(pod, name) for pod in picture.pods):
        yield from runtime(node)
    yield from _offer(node, picture)


def _taints(node: Json, picture: Picture) -> Iterator[Finding]:
    name = name_of(node)
    for taint in closing_taints(_NOBODY, node):
        text = taint_text(taint)
        if taint["key"].startswith(OWN_TAINTS):
            yield from _hot(node, text, picture)
        elif taint["key"] == "node.kubernetes.io/unschedulable":
            yield warn("cordon", f"{name} is cordoned", f"`kubectl uncordon {name}`")
        else:
            yield warn("taint", f"{name} has the taint {text}", "Pods must tolerate it")


def _hot(node: Json, taint: str, picture: Picture) -> Iterator[Finding]:
    name = name_of(node)
    until = node["metadata"].get("annotations", {}).get(_HOLD)
    remedy = (
        f"held by hand until {until} (annotation {_HOLD})"
        if until
        else "it opens by itself once cool and the hold is over; less load or more air helps"
    )
    yield warn("heat", f"{name} {heat(name, node, picture)}; taint {taint}", remedy)
    mine = [entry for entry in picture.decisions if entry.get("node") == name]
    for entry in mine[:_DECISIONS]:
        yield ok("guard", f"{entry['at']} {entry['reason']}: {entry['text']}")


def _offer(node: Json, picture: Picture) -> Iterator[Finding]:
    name = name_of(node)
    capacity = counts(node, "capacity", picture.resources)
    allocatable = counts(node, "allocatable", picture.resources)
    page = picture.allocations.get(name)
    for resource, count in sorted(capacity.items()):
        offered = allocatable.get(resource, 0)
        left = max(0, free(node, picture.pods, picture.resources).get(resource, 0))
        text = f"{name}: {resource} capacity {count}, allocatable {offered}, free {left}"
        if count and offered == count:
            yield ok("offer", f"{text}{_users(name, resource, picture)}")
        elif count:
            yield warn("offer", text, "a device of it is unhealthy or withdrawn: see below")
    if not any(capacity.values()):
        yield from _nothing(node, picture)
    if page is not None:
        yield from _slots(name, page)


def _nothing(node: Json, picture: Picture) -> Iterator[Finding]:
    name = name_of(node)
    plugins = [
        pod
        for pod in picture.pods
        if pod["metadata"].get("labels", {}).get(_PLUGIN) == "plugin" and holds(pod, name)
    ]
    if not plugins:
        yield fail(
            "plugin",
            f"{name} offers no NPU and no device plugin runs there",
            "compare node selector, profile and affinity of the DaemonSet with the node's labels",
        )
    for pod in plugins:
        if is_ready(pod) and serves_claims(pod):
            yield warn(
                "plugin",
                f"{name} has no ResourceSlice of ours; {full_name(pod)} is ready",
                "it found no NPU, or no guard published what it found: its page /dra lists devices "
                "and whether the kubelet knows the driver",
            )
        elif is_ready(pod):
            yield warn(
                "plugin",
                f"{name} offers no NPU; {full_name(pod)} is ready and found none",
                "is the driver loaded? `python -m plugin doctor` in that Pod looks at the board",
            )
        else:
            yield fail(
                "plugin",
                f"{name} offers no NPU; {full_name(pod)} is not ready",
                f"`kubectl -n {pod['metadata']['namespace']} describe pod {name_of(pod)}`",
            )


def _slots(name: str, page: Json) -> Iterator[Finding]:
    for slot in page.get("devices", ()):
        if slot.get("state") != "healthy":
            detail = f": {slot['detail']}" if slot.get("detail") else ""
            yield warn(
                "device",
                f"{name} {slot['id']} ({slot['resource']}) is {slot['state']}: "
                f"{slot['reason']}{detail}",
                "docs/device-plugin.md explains the reasons; a withdrawn one comes back when cool",
            )
    for item in page.get("notOffered", ()):
        detail = f": {item['detail']}" if item.get("detail") else ""
        yield warn(
            "device",
            f"{name} {item['what']} is not offered: {item['reason']}{detail}",
            "docs/device-plugin.md and docs/boards.md: driver, device tree or configuration",
        )


def _users(node: str, resource: str, picture: Picture) -> str:
    users = sorted(
        f"{full_name(pod)} ({listed({resource: count})})"
        for pod in picture.pods
        if holds(pod, node) and (count := requests(pod, picture.resources).get(resource))
    )
    return f"; held by {', '.join(users)}" if users else ""

"""Nodes and Pods of mode ``dra`` as they would look with a device plugin. Pure.

On a node that hands NPUs out by claims the kubelet counts none: what there is stands in
ResourceSlices, what is closed for heat in DeviceTaintRules, who has something in ResourceClaims.
Put on copies of Nodes and Pods, every question can be answered without knowing the difference.
"""

import copy
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from kubectl_npu.client import Json
from kubectl_npu.finding import Finding, fail, warn

#: Selects slices and rules that a guard of ours wrote.
PUBLISHED = "npu-platform.io/published-by"
#: Marks plugin Pods of this mode.
MODE = ("npu-platform.io/mode", "dra")
_CLOSING = ("NoSchedule", "NoExecute")
_DRIVERS = ("npu.rockchip.com", "npu-rocket.rockchip.com", "ascend.npu-platform.io")
_BY_CLAIM = "(claims)"
#: Minor version of containerd 1.
_FIRST_WITH_CDI = 7


def in_use(pods: Sequence[Json]) -> bool:
    """Tell whether a plugin hands out NPUs by claims."""
    return any(serves_claims(pod) for pod in pods)


def serves_claims(pod: Json) -> bool:
    """Tell whether a Pod is a plugin of this mode."""
    return bool(pod["metadata"].get("labels", {}).get(MODE[0]) == MODE[1])


def runtime(node: Json) -> Iterator[Finding]:
    """Yield what keeps devices of claims from the containers of a node.

    They are handed over by CDI, which containerd has since 1.7, off by default before 2.0. Others
    start the container without a word, and without its NPU; of those that are known to have no
    CDI the guard publishes nothing.
    """
    told = str(node.get("status", {}).get("nodeInfo", {}).get("containerRuntimeVersion", ""))
    found = re.match(r"containerd://v?1\.(\d+)", told)
    if found is None:
        return
    version = told.replace("://", " ")
    if int(found[1]) < _FIRST_WITH_CDI:
        yield fail(
            "runtime",
            f"{_name(node)}: {version} knows no CDI: Pods would run without their NPU, so that the "
            "guard publishes none",
            "containerd 2, or plugin.mode devicePlugin for this node (docs/dra.md)",
        )
    else:
        yield warn(
            "runtime",
            f"{_name(node)}: {version} hands over devices of claims only with enable_cdi = true",
            "see that its configuration says so, or use containerd 2 (docs/dra.md)",
        )


def nodes_with(nodes: Sequence[Json], slices: Sequence[Json], rules: Sequence[Json]) -> list[Json]:
    """Return the Nodes with published devices in their status, and heat of all of them as taint."""
    found = []
    for node in nodes:
        mine = [item for item in slices if item["spec"].get("nodeName") == _name(node)]
        found.append(_node_with(node, mine, rules) if mine else node)
    return found


def _node_with(node: Json, slices: Sequence[Json], rules: Sequence[Json]) -> Json:
    capacity: Counter[str] = Counter()
    allocatable: Counter[str] = Counter()
    hot: list[Json | None] = []
    for item in slices:
        for device in item["spec"].get("devices", ()):
            resource = device.get("attributes", {}).get("resource", {}).get("string")
            if not resource:
                continue
            rule = _rule_of(item["spec"], device["name"], rules)
            hot.append(rule)
            capacity[resource] += 1
            allocatable[resource] += not device.get("taints") and rule is None
    made = copy.deepcopy(node)
    closed = [rule for rule in hot if rule is not None]
    if closed and len(closed) == len(hot):
        taint = dict(closed[0]["spec"]["taint"])
        made["spec"]["taints"] = [*made["spec"].get("taints", ()), taint]
        # The taint says it: nothing is broken or withdrawn.
        allocatable = capacity
    for kind, counted in (("capacity", capacity), ("allocatable", allocatable)):
        # In place of what is there: the kubelet keeps the name of a resource, and the number of it,
        # that a device plugin offered before the node was moved.
        made["status"].setdefault(kind, {}).update(
            {resource: str(counted[resource]) for resource in capacity}
        )
    return made


def _rule_of(spec: Json, device: str, rules: Sequence[Json]) -> Json | None:
    for rule in rules:
        selector = rule["spec"].get("deviceSelector", {})
        wanted = (selector.get("driver"), selector.get("pool"), selector.get("device", device))
        if rule["spec"]["taint"].get("effect") in _CLOSING and wanted == (
            spec.get("driver"),
            spec.get("pool", {}).get("name"),
            device,
        ):
            return rule
    return None


def pods_with(pods: Sequence[Json], claims: Sequence[Json], slices: Sequence[Json]) -> list[Json]:
    """Return the Pods, those that brought a claim with what they were given in their limits."""
    resources = {
        (item["spec"]["driver"], item["spec"].get("pool", {}).get("name"), device["name"]): device
        for item in slices
        for device in item["spec"].get("devices", ())
    }
    by_name = {(c["metadata"].get("namespace"), _name(c)): c for c in claims}
    found = []
    for pod in pods:
        given: Counter[str] = Counter()
        for name in claim_names(pod):
            claim = by_name.get((pod["metadata"].get("namespace"), name), {})
            for key in _results(claim):
                device = resources.get(key, {})
                given[device.get("attributes", {}).get("resource", {}).get("string", "")] += 1
        del given[""]
        found.append(_pod_with(pod, given) if given else pod)
    return found


def _pod_with(pod: Json, given: Counter[str]) -> Json:
    made = copy.deepcopy(pod)
    limits = {resource: str(count) for resource, count in given.items()}
    made["spec"]["containers"].append({"name": _BY_CLAIM, "resources": {"limits": limits}})
    return made


def claim_names(pod: Json) -> list[str]:
    """Return the claims that a Pod brought; those made for a resource name are not among them."""
    made = {
        status["name"]: status.get("resourceClaimName")
        for status in pod.get("status", {}).get("resourceClaimStatuses", ())
    }
    names = (
        entry.get("resourceClaimName") or made.get(entry["name"])
        for entry in pod["spec"].get("resourceClaims", ())
    )
    return [name for name in names if name]


def _results(claim: Json) -> Iterator[tuple[str, str, str]]:
    allocation = claim.get("status", {}).get("allocation", {})
    for item in allocation.get("devices", {}).get("results", ()):
        if item.get("driver") in _DRIVERS:
            yield item["driver"], item.get("pool", ""), item["device"]


def _name(item: Json) -> str:
    return str(item["metadata"]["name"])

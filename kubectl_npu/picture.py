"""What was read from a cluster, and what the objects say about NPUs. Pure."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from kubectl_npu.client import Json
from kubectl_npu.exposition import Sample

VENDORS = ("rockchip.com/", "huawei.com/")
OWN_TAINTS = "thermal.npu-platform.io/"
#: The last phases of a Pod: it holds nothing any more.
ENDED = ("Succeeded", "Failed")
_QUANTITY: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30}))"
    r"(?:(?P<binary>[KMGTPE])i|(?P<decimal>[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,2}))?"
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A cluster at one moment.

    ``metrics`` are the exporter's by node; ``before`` the same, ``interval_seconds`` earlier (empty
    when loads were not asked for). ``guard`` is its page of nodes by node, ``decisions`` its last
    decisions, newest first. ``allocations`` are the device plugin's page by node. ``missing`` says
    what could not be read, a line each; ``offers_unknown`` that this is what nodes offer to claims.
    """

    nodes: Sequence[Json] = ()
    pods: Sequence[Json] = ()
    quotas: Sequence[Json] = ()
    events: Sequence[Json] = ()
    metrics: Mapping[str, Sequence[Sample]] = field(default_factory=dict)
    before: Mapping[str, Sequence[Sample]] = field(default_factory=dict)
    guard: Mapping[str, Json] = field(default_factory=dict)
    decisions: Sequence[Json] = ()
    allocations: Mapping[str, Json] = field(default_factory=dict)
    resources: Collection[str] = ()
    offers_unknown: bool = False
    missing: Sequence[str] = ()


def name_of(item: Json) -> str:
    """Return the name of an object."""
    return str(item["metadata"]["name"])


def full_name(item: Json) -> str:
    """Return ``namespace/name``."""
    return f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}"


def known_resources(nodes: Sequence[Json], pods: Sequence[Json]) -> frozenset[str]:
    """Return the names of our vendors under which nodes offer or Pods ask for something."""
    offered = (node.get("status", {}).get("capacity", {}) for node in nodes)
    asked = (
        container.get("resources", {}).get("limits", {})
        for pod in pods
        for container in pod["spec"].get("containers", [])
    )
    found = (name for quantities in (*offered, *asked) for name in quantities)
    return frozenset(name for name in found if name.startswith(VENDORS))


def quantity(text: object) -> int:
    """Return a quantity of Kubernetes, which writes 1000 as ``1k``; 0 where it is none.

    The API server takes integers only where devices are counted.
    """
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        return 0
    if found["binary"]:
        return int(Decimal(found["number"]) * 1024 ** ("KMGTPE".index(found["binary"]) + 1))
    power = _DECIMAL[found["decimal"]] if found["decimal"] else int(found["exponent"] or 0)
    return int(Decimal(found["number"]).scaleb(power))


def requests(pod: Json, resources: Collection[str]) -> dict[str, int]:
    """Return how many NPUs a Pod asks for, by resource."""
    asked: dict[str, int] = {}
    for container in pod["spec"].get("containers", []):
        limits = container.get("resources", {}).get("limits", {})
        for name in limits.keys() & set(resources):
            asked[name] = asked.get(name, 0) + quantity(limits[name])
    return {name: count for name, count in asked.items() if count}


def counts(node: Json, kind: str, resources: Collection[str]) -> dict[str, int]:
    """Return the NPUs of a node: ``kind`` is ``capacity`` or ``allocatable``."""
    quantities = node.get("status", {}).get(kind, {})
    return {name: quantity(text) for name, text in quantities.items() if name in set(resources)}


def holds(pod: Json, node: str) -> bool:
    """Tell whether a Pod counts against what a node has."""
    phase = pod.get("status", {}).get("phase")
    return pod["spec"].get("nodeName") == node and phase not in ENDED


def free(node: Json, pods: Sequence[Json], resources: Collection[str]) -> dict[str, int]:
    """Return the NPUs of a node that are allocatable and that no Pod has asked for."""
    left = counts(node, "allocatable", resources)
    for pod in pods:
        if holds(pod, name_of(node)):
            for resource, count in requests(pod, resources).items():
                left[resource] = left.get(resource, 0) - count
    return left


def enough(offer: Mapping[str, int], asked: Mapping[str, int]) -> bool:
    """Tell whether an offer covers all that is asked for."""
    return all(offer.get(resource, 0) >= count for resource, count in asked.items())


def listed(asked: Mapping[str, int]) -> str:
    """Return numbers of NPUs for people."""
    return ", ".join(f"{count} {resource}" for resource, count in sorted(asked.items()))


def is_ready(item: Json) -> bool:
    """Tell whether a Pod or a Node has the condition Ready."""
    conditions = item.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def holders(picture: Picture, node: str) -> dict[str, list[str]]:
    """Return the Pods by device of a node, as the kubelet told the exporter."""
    found: dict[str, list[str]] = {}
    for sample in picture.metrics.get(node, ()):
        if sample.name == "npu_device_allocation_info":
            pod = f"{sample.labels.get('namespace', '')}/{sample.labels.get('pod', '')}"
            pods = found.setdefault(sample.labels.get("device", ""), [])
            if pod not in pods:
                pods.append(pod)
    return found

"""What a ResourceSlice says, and what is kept of one. Pure."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from thermal.dra.offers import VERSION_ATTRIBUTE, Attribute, OfferedDevice, OfferedDriver
from thermal.objects import Json, NodeRecord

SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
#: Selects what a guard wrote; the value is the release.
LABEL: Final = "npu-platform.io/published-by"
#: Taints of devices in their own slice: broken, and well but to be left alone.
TAINT_UNHEALTHY: Final = "npu-platform.io/unhealthy"
TAINT_WITHDRAWN: Final = "npu-platform.io/withdrawn"
_NAME_LIMIT = 253


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRecord:
    """A ResourceSlice of ours. ``devices`` are as written, without the times of taints.

    ``count`` tells of how many slices its pool is, in this generation. ``pool`` is the node's name
    in all that a guard wrote.
    """

    name: str
    driver: str
    node: str
    generation: int
    resource_version: str
    devices: tuple[Json, ...]
    count: int = 1
    pool: str = ""

    @property
    def capacity(self) -> Counter[tuple[str, str]]:
        """How many devices there are by resource, and by ``available`` or ``tainted``."""
        resources = self.resources
        return Counter(
            (
                resources[str(device.get("name", ""))],
                "tainted" if device.get("taints") else "available",
            )
            for device in self.devices
        )

    @property
    def resources(self) -> dict[str, str]:
        """The resource under which each device is offered."""
        return {
            str(device.get("name", "")): (device.get("attributes") or {})
            .get("resource", {})
            .get("string", "")
            for device in self.devices
        }


def slice_record(item: Json) -> SliceRecord:
    """Trim a ResourceSlice."""
    metadata, spec = item.get("metadata") or {}, item.get("spec") or {}
    return SliceRecord(
        name=str(metadata.get("name", "")),
        driver=str(spec.get("driver", "")),
        node=str(spec.get("nodeName", "")),
        generation=int((spec.get("pool") or {}).get("generation", 0)),
        resource_version=str(metadata.get("resourceVersion", "")),
        devices=tuple(_without_times(device) for device in spec.get("devices") or ()),
        count=int((spec.get("pool") or {}).get("resourceSliceCount", 1)),
        pool=str((spec.get("pool") or {}).get("name", "")),
    )


def slice_name(node: str, driver: str, part: int = 0) -> str:
    """Return the name of a slice of a node, the same every time: two guards never make two."""
    tail = driver if part == 0 else f"{driver}-{part}"
    name = f"{node}-{tail}"
    if len(name) <= _NAME_LIMIT:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{node[:150].rstrip('-.')}-{digest}-{tail}"


def devices_of(driver: OfferedDriver) -> tuple[Json, ...]:
    """Return the devices of a slice."""
    return tuple(_device(device) for device in driver.devices)


def new_slice(
    name: str,
    node: NodeRecord,
    *,
    driver: str,
    pool: Json,
    devices: Sequence[Json],
    release: str,
) -> Json:
    """Return a slice to create. It goes with its Node, which nobody else would notice."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": name,
            "labels": {LABEL: release},
            "ownerReferences": [owner],
        },
        "spec": {
            "driver": driver,
            "nodeName": node.name,
            "pool": pool,
            "devices": list(devices),
        },
    }


def slice_patch(present: SliceRecord, *, pool: Json, devices: Sequence[Json]) -> Json:
    """Return the merge patch that gives a slice these devices, as part of a generation."""
    return {
        "metadata": {"resourceVersion": present.resource_version},
        "spec": {"pool": pool, "devices": list(devices)},
    }


def _device(device: OfferedDevice) -> Json:
    found: Json = {
        "name": device.name,
        "attributes": {
            name: _value(name, value) for name, value in sorted(device.attributes.items())
        },
    }
    if device.state != "healthy":
        key = TAINT_UNHEALTHY if device.state == "unhealthy" else TAINT_WITHDRAWN
        taint: Json = {"key": key, "effect": "NoSchedule"}
        if device.reason:
            taint["value"] = device.reason
        found["taints"] = [taint]
    return found


def _value(name: str, value: Attribute) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    return {"version" if name == VERSION_ATTRIBUTE else "string": value}


def _without_times(device: Mapping[str, Any]) -> Json:
    """Return a device as it was sent: the API server adds times to taints."""
    found = dict(device)
    if found.get("taints"):
        found["taints"] = [
            {key: value for key, value in taint.items() if key != "timeAdded"}
            for taint in found["taints"]
        ]
    return found

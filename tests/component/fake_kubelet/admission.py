"""What a kubelet decides before and after Allocate, and what it writes down. Pure.

The order of checks and their texts are those of ``devicesToAllocate`` in
``pkg/kubelet/cm/devicemanager/manager.go``; the file is that of its package ``checkpoint``.
"""

import base64
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

#: Key of identifiers without a memory node, ``nodeWithoutTopology`` of the device manager.
_NO_NODE = "-1"


class AdmissionError(Exception):
    """The Pod is Failed for good with ``UnexpectedAdmissionError``; the text is its message."""

    def __init__(self, why: str) -> None:
        super().__init__(f"Allocate failed due to {why}, which is unexpected")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Devices of a container with the plugin's answer, which is never asked for again."""

    pod: str
    container: str
    resource: str
    ids: tuple[str, ...]
    answer: bytes


def needed(
    resource: str,
    count: int,
    *,
    pod: str,
    container: str,
    held: Collection[str] | None,
    healthy: Collection[str] | None,
    running_at_start: bool,
) -> int:
    """Return how many devices must still be found for a container; raises AdmissionError.

    ``held`` are those it has by the checkpoint, None without an entry. ``healthy`` are the healthy
    ones of the resource, None where it is not registered. ``running_at_start`` tells that the
    kubelet is still starting and the runtime reported the container as running.
    """
    if held is not None and len(held) != count:
        raise AdmissionError(
            f'pod "{pod}" container "{container}" changed request for resource "{resource}" '
            f"from {len(held)} to {count}"
        )
    if running_at_start:
        return 0
    if healthy is None:
        raise AdmissionError(f"cannot allocate unregistered device {resource}")
    if not healthy:
        raise AdmissionError(
            f"no healthy devices present; cannot allocate unhealthy devices {resource}"
        )
    if held is not None and not set(held) <= set(healthy):
        raise AdmissionError(
            "previously allocated devices are no longer healthy; "
            f"cannot allocate unhealthy devices {resource}"
        )
    return 0 if held is not None else count


def free(
    resource: str, count: int, *, healthy: Collection[str], in_use: Collection[str]
) -> list[str]:
    """Return the devices to choose from; raises AdmissionError where they are too few."""
    available = [identifier for identifier in healthy if identifier not in in_use]
    if len(available) < count:
        raise AdmissionError(
            f"requested number of devices unavailable for {resource}. "
            f"Requested: {count}, Available: {len(available)}"
        )
    return available


def chosen(available: Collection[str], preferred: Collection[str], count: int) -> tuple[str, ...]:
    """Return ``count`` devices: those preferred that are available, then any."""
    wanted = [identifier for identifier in preferred if identifier in available]
    others = [identifier for identifier in available if identifier not in wanted]
    return tuple((wanted + others)[:count])


def written(allocations: Iterable[Allocation], registered: Mapping[str, Collection[str]]) -> str:
    """Return the checkpoint file; the checksum is not that of a real one."""
    entries = [
        {
            "PodUID": one.pod,
            "ContainerName": one.container,
            "ResourceName": one.resource,
            "DeviceIDs": {_NO_NODE: list(one.ids)},
            "AllocResp": base64.b64encode(one.answer).decode(),
        }
        for one in allocations
    ]
    devices = {resource: sorted(ids) for resource, ids in registered.items()}
    data = {"PodDeviceEntries": entries or None, "RegisteredDevices": devices}
    return json.dumps({"Data": data, "Checksum": 0})


def read(text: str) -> tuple[tuple[Allocation, ...], frozenset[str]]:
    """Return allocations and names of registered resources of a checkpoint file."""
    data = json.loads(text)["Data"]
    allocations = tuple(
        Allocation(
            pod=entry["PodUID"],
            container=entry["ContainerName"],
            resource=entry["ResourceName"],
            ids=tuple(identifier for ids in entry["DeviceIDs"].values() for identifier in ids),
            answer=base64.b64decode(entry["AllocResp"]),
        )
        for entry in data["PodDeviceEntries"] or ()
    )
    return allocations, frozenset(data["RegisteredDevices"])

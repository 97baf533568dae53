"""The device table: what is offered under which resource name. Pure."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from npu.ids import device_of, sort_key
from npu.model import Inventory, Npu
from plugin.health import HealthState

SlotState = Literal["healthy", "unhealthy", "withdrawn"]

#: Gives the identifiers under which an NPU is offered, at least one.
SlotPolicy = Callable[[Npu], tuple[str, ...]]


def whole_device(npu: Npu) -> tuple[str, ...]:
    """Offer an NPU as one slot named like the device."""
    return (npu.id,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One identifier as the kubelet sees it.

    ``withdrawn`` is listed like ``unhealthy`` and means that the hardware is fine.
    """

    id: str
    device: str
    resource: str
    state: SlotState
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTable:
    """All slots, sorted, and the NPUs behind them as they were last seen."""

    slots: tuple[Slot, ...] = ()
    npus: Mapping[str, Npu] = field(default_factory=lambda: MappingProxyType({}))

    def resources(self) -> tuple[str, ...]:
        """Return the names under which something is listed."""
        return tuple(dict.fromkeys(slot.resource for slot in self.slots))

    def of(self, resource: str) -> tuple[Slot, ...]:
        """Return the slots of one resource."""
        return tuple(slot for slot in self.slots if slot.resource == resource)


def resource_of(npu: Npu, resources: Mapping[str, str]) -> str | None:
    """Return the resource name for ``npu``: by model, else by driver; None is "not offered"."""
    return resources.get(npu.model) or resources.get(npu.driver)


def known_npus(before: DeviceTable, inventory: Inventory) -> dict[str, Npu]:
    """Return all NPUs seen since the start, each as last seen.

    A device that went away stays known: the kubelet shows one that is missing from the list as
    healthy in the status of the Pod that holds it, and does not look again.
    """
    return dict(before.npus) | {npu.id: npu for npu in inventory.npus}


def build_table(
    npus: Mapping[str, Npu],
    health: Mapping[str, HealthState],
    *,
    resources: Mapping[str, str],
    held: Mapping[str, Collection[str]],
    policy: SlotPolicy = whole_device,
) -> DeviceTable:
    """Build the table.

    ``health`` has an entry for each of ``npus``. ``held`` are the identifiers that containers hold,
    by resource: those the policy does not give are listed as well, because the kubelet refuses to
    take back a Pod whose identifier it cannot find. While such a one is held on a device that is
    still there, the device's other slots are withdrawn.
    """
    slots: dict[str, Slot] = {}
    for npu in npus.values():
        resource = resource_of(npu, resources)
        if resource is None:
            continue
        for identifier in policy(npu):
            slots[identifier] = _slot(identifier, npu.id, resource, health[npu.id])
    for resource, identifier, device in _leftovers(held, slots, set(resources.values())):
        state = health.get(device)
        if state is None:
            slots[identifier] = Slot(
                id=identifier,
                device=device,
                resource=resource,
                state="unhealthy",
                reason="lost",
                detail=f"{device} is held by a container and not found on this board",
            )
            continue
        slots |= {
            other.id: _withdrawn(other, f"{device} is still held as {identifier}")
            for other in slots.values()
            if other.device == device and other.state == "healthy"
        }
        slots[identifier] = _slot(identifier, device, resource, state)
    ordered = sorted(slots.values(), key=lambda slot: (slot.resource, sort_key(slot.id)))
    return DeviceTable(slots=tuple(ordered), npus=MappingProxyType(dict(npus)))


def _slot(identifier: str, device: str, resource: str, state: HealthState) -> Slot:
    return Slot(
        id=identifier,
        device=device,
        resource=resource,
        state="healthy" if state.healthy else "unhealthy",
        reason=state.reason,
        detail=state.detail,
    )


def _withdrawn(slot: Slot, detail: str) -> Slot:
    return Slot(
        id=slot.id,
        device=slot.device,
        resource=slot.resource,
        state="withdrawn",
        reason="held_in_other_mode",
        detail=detail,
    )


def _leftovers(
    held: Mapping[str, Collection[str]], slots: Mapping[str, Slot], ours: Collection[str]
) -> Iterator[tuple[str, str, str]]:
    for resource in sorted(held.keys() & set(ours)):
        for identifier in sorted(held[resource], key=sort_key):
            if identifier in slots:
                continue
            try:
                yield resource, identifier, device_of(identifier)
            except ValueError:
                continue

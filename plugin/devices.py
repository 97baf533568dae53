"""The device table: what is offered under which resource name. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from npu.ids import device_of, slot_of, sort_key
from npu.model import Inventory, Npu
from plugin.health import HealthState
from plugin.limiter import Limit
from plugin.sharing import WHOLE, Sharing, core_hint

SlotState = Literal["healthy", "unhealthy", "withdrawn"]

#: Reason of slots that wait for the holder of an identifier of another ``sharing``.
HELD_IN_OTHER_MODE = "held_in_other_mode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One identifier as the kubelet sees it.

    ``withdrawn`` is listed like ``unhealthy`` and means that the hardware is fine. ``cores`` are
    those to advise to the holder, empty where their number is not known. ``leftover`` tells that
    it is listed for its holder only: the NPU is divided in another way by now.
    """

    id: str
    device: str
    resource: str
    state: SlotState
    reason: str
    detail: str = ""
    cores: tuple[int, ...] = ()
    leftover: bool = False


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

    def resource_of(self, identifier: str) -> str | None:
        """Return the resource of an identifier, None where it is not listed."""
        return next((slot.resource for slot in self.slots if slot.id == identifier), None)


def resource_of(npu: Npu, resources: Mapping[str, str], sharing: Sharing = WHOLE) -> str | None:
    """Return the resource name for ``npu``: by model, else by driver; None is "not offered"."""
    name = resources.get(npu.model) or resources.get(npu.driver)
    return None if name is None else sharing.resource(npu, name)


def known_npus(before: DeviceTable, inventory: Inventory) -> dict[str, Npu]:
    """Return all NPUs seen since the start, each as last seen.

    A device that went away stays known: the kubelet shows one that is missing from the list as
    healthy in the status of the Pod that holds it, and does not look again. The number of cores is
    remembered too: the driver tells it in a file that cannot always be read, and slots must not
    come and go with it.
    """
    known = dict(before.npus)
    for npu in inventory.npus:
        seen = known.get(npu.id)
        if npu.cores is None and seen is not None and seen.unit == npu.unit:
            known[npu.id] = replace(npu, cores=seen.cores)
        else:
            known[npu.id] = npu
    return known


def build_table(
    npus: Mapping[str, Npu],
    health: Mapping[str, HealthState],
    *,
    resources: Mapping[str, str],
    held: Mapping[str, Collection[str]],
    ours: Collection[str] = (),
    sharing: Sharing = WHOLE,
    limits: Mapping[str, Limit] = MappingProxyType({}),
) -> DeviceTable:
    """Build the table.

    ``health`` has an entry for each of ``npus``. ``held`` are the identifiers that containers hold,
    by resource: those that ``sharing`` does not give are listed as well, under the names of
    ``resources`` and ``ours``, because the kubelet refuses to take back a Pod whose identifier it
    cannot find. While such a one is held, other slots of its device are withdrawn: all of them
    where a whole device meets slots, else so many that no more containers than slots have it.
    ``limits`` are those in force for heat, by device.
    """
    slots: dict[str, Slot] = {}
    for npu in npus.values():
        resource = resource_of(npu, resources, sharing)
        if resource is None:
            continue
        identifiers = sharing.identifiers(npu)
        for number, identifier in enumerate(identifiers):
            cores = core_hint(npu.cores, number, len(identifiers))
            slots[identifier] = _slot(identifier, npu.id, resource, health[npu.id], cores)
    in_use = {(resource, identifier) for resource, ids in held.items() for identifier in ids}
    names = {*resources.values(), *ours}
    leftovers = {
        slot.id: slot
        for resource, identifier in in_use
        if resource in names
        and (identifier not in slots or slots[identifier].resource != resource)
        and (slot := _leftover(resource, identifier, npus, health)) is not None
    }
    # An identifier is never listed under two resources: the holder's wins.
    slots |= leftovers
    for identifier in sorted(leftovers.keys() - _lost(leftovers, npus), key=sort_key):
        npu = npus[leftovers[identifier].device]
        whole = identifier == npu.id or sharing.count(npu) == 1
        slots |= _limited(
            [slot for slot in slots.values() if slot.device == npu.id],
            in_use,
            0 if whole else sharing.count(npu),
            reason=HELD_IN_OTHER_MODE,
            detail=f"{npu.id} is still held as {identifier}",
        )
    for device, limit in limits.items():
        if limit.slots is not None:
            slots |= _limited(
                [slot for slot in slots.values() if slot.device == device],
                in_use,
                limit.slots,
                reason=limit.reason,
                detail=f"free slots follow the heat of {device}: at most {limit.slots} in use",
            )
    ordered = sorted(slots.values(), key=lambda slot: (slot.resource, sort_key(slot.id)))
    return DeviceTable(slots=tuple(ordered), npus=MappingProxyType(dict(npus)))


def withheld(table: DeviceTable, devices: Collection[str]) -> DeviceTable:
    """Return ``table`` with the slots of ``devices`` withdrawn."""
    if not devices:
        return table
    detail = "a Pod of this node's other mode has it"
    return replace(
        table,
        slots=tuple(
            replace(slot, state="withdrawn", reason=HELD_IN_OTHER_MODE, detail=detail)
            if slot.device in devices and slot.state != "unhealthy"
            else slot
            for slot in table.slots
        ),
    )


def _slot(
    identifier: str, device: str, resource: str, state: HealthState, cores: tuple[int, ...]
) -> Slot:
    return Slot(
        id=identifier,
        device=device,
        resource=resource,
        state="healthy" if state.healthy else "unhealthy",
        reason=state.reason,
        detail=state.detail,
        cores=cores,
    )


def _leftover(
    resource: str,
    identifier: str,
    npus: Mapping[str, Npu],
    health: Mapping[str, HealthState],
) -> Slot | None:
    """Return the slot of an identifier that is held and not offered, None if it is not ours."""
    try:
        device = device_of(identifier)
    except ValueError:
        return None
    npu, state = npus.get(device), health.get(device)
    if npu is None or state is None:
        state = HealthState(
            healthy=False,
            reason="lost",
            detail=f"{device} is held by a container and not found on this board",
        )
        return replace(_slot(identifier, device, resource, state, ()), leftover=True)
    number = slot_of(identifier)
    # Of how many slots it was one is not known; the core of its number is the best advice.
    cores = core_hint(npu.cores, number or 0, 1 if number is None else max(npu.cores or 0, 2))
    return replace(_slot(identifier, device, resource, state, cores), leftover=True)


def _lost(leftovers: Mapping[str, Slot], npus: Mapping[str, Npu]) -> set[str]:
    return {identifier for identifier, slot in leftovers.items() if slot.device not in npus}


def _limited(
    slots: Collection[Slot],
    in_use: Collection[tuple[str, str]],
    limit: int,
    *,
    reason: str,
    detail: str,
) -> dict[str, Slot]:
    """Withdraw free slots of one device, the last ones first, and return those.

    ``limit`` slots are left, those in use among them. What a container holds is never withdrawn:
    the kubelet would not take its Pod back.
    """
    free = sorted(
        (s for s in slots if s.state == "healthy" and (s.resource, s.id) not in in_use),
        key=lambda slot: sort_key(slot.id),
    )
    busy = sum((slot.resource, slot.id) in in_use for slot in slots)
    return {
        slot.id: replace(slot, state="withdrawn", reason=reason, detail=detail)
        for slot in free[max(0, limit - busy) :]
    }

"""What a node has to allocate, by driver, in the words of ResourceSlices. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from npu.model import Npu
from npu.names import DRA_DRIVER_ASCEND, DRA_DRIVERS
from plugin.ascend import is_ascend
from plugin.devices import HELD_IN_OTHER_MODE, DeviceTable, Slot, SlotState

Attribute = str | int | bool
#: A text attribute of a device has at most 64 characters.
_TEXT_LIMIT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDevice:
    """One device of a pool: a whole NPU or a slot of one."""

    name: str
    state: SlotState
    reason: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


def driver_of(npu: Npu) -> str | None:
    """Return the name of the driver that serves an NPU, None where none does."""
    return DRA_DRIVER_ASCEND if is_ascend(npu) else DRA_DRIVERS.get(npu.driver)


def slots_by_driver(table: DeviceTable) -> dict[str, tuple[Slot, ...]]:
    """Return what each driver offers; identifiers whose NPU is not known belong to none."""
    found: dict[str, list[Slot]] = {}
    for slot in table.slots:
        npu = table.npus.get(slot.device)
        driver = None if npu is None else driver_of(npu)
        if driver is not None:
            found.setdefault(driver, []).append(slot)
    return {driver: tuple(slots) for driver, slots in sorted(found.items())}


def pool_of(table: DeviceTable, driver: str, *, simulated: bool) -> tuple[PoolDevice, ...]:
    """Return the devices of one driver."""
    return tuple(
        PoolDevice(
            name=slot.id,
            state=slot.state,
            reason=slot.reason,
            attributes=_attributes(table.npus[slot.device], slot, simulated=simulated),
        )
        for slot in map(_closed, slots_by_driver(table).get(driver, ()))
    )


def _closed(slot: Slot) -> Slot:
    """Return a slot as others may have it: one that goes with its holder is for nobody else.

    Free for a moment, it would be given to a Pod that waits for it ever after.
    """
    if slot.leftover and slot.state == "healthy":
        return replace(slot, state="withdrawn", reason=HELD_IN_OTHER_MODE)
    return slot


def _attributes(npu: Npu, slot: Slot, *, simulated: bool) -> dict[str, Attribute]:
    """Return what claims can select by; what is not known is absent."""
    values: dict[str, Attribute | None] = {
        "resource": slot.resource,
        "device": npu.id,
        "vendor": npu.vendor,
        "model": npu.model,
        "cores": npu.cores,
        "driver": npu.driver,
        "driverVersion": _semantic(npu.driver_version),
        "board": npu.board,
        "simulated": simulated,
    }
    return {
        name: value[:_TEXT_LIMIT] if isinstance(value, str) else value
        for name, value in values.items()
        if value is not None and value != ""
    }


def _semantic(version: str | None) -> str | None:
    """Return the first three numbers of a version, as semver wants them: 0.9.8, 24.1.0."""
    parts = (version or "").removeprefix("v").split(".")[:3]
    numbers = [part for part in parts if part.isascii() and part.isdigit()]
    if not numbers or len(numbers) != len(parts):
        return None
    return ".".join(str(int(number)) for number in [*numbers, "0", "0"][:3])

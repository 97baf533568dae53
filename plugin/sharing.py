"""How an NPU is divided into slots, and which slots a container should get. Pure.

A slot is a turn at the whole NPU, not a part of it: nothing ties a program to a core or to a share
of the memory. What slots are good for is counting: so many containers at once and no more.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from npu.ids import slot_id, sort_key
from npu.model import Npu
from plugin.ascend import is_ascend

#: A number of slots, or one per core that the driver reports.
SlotCount = int | Literal["cores"]
#: Ending of the resource under which slots are offered where they have a name of their own.
SHARED_SUFFIX = ".shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Into how many slots each NPU is divided; one slot is the whole NPU.

    With ``own_name`` slots are offered under the resource's name with :data:`SHARED_SUFFIX`, so
    that a request tells whether it is for a whole NPU or for a turn. ``whole`` are devices that
    are never divided.
    """

    slots: SlotCount = 1
    own_name: bool = False
    whole: frozenset[str] = frozenset()

    @property
    def active(self) -> bool:
        """Whether any NPU may be offered in slots."""
        return self.slots != 1

    def count(self, npu: Npu) -> int:
        """Return the number of slots; an NPU whose cores are not known is offered as a whole.

        So is an Ascend chip: its driver lets in one container, unless told otherwise by hand.
        """
        if is_ascend(npu) or npu.id in self.whole:
            return 1
        if self.slots == "cores":
            return npu.cores or 1
        return self.slots

    def identifiers(self, npu: Npu) -> tuple[str, ...]:
        """Return the identifiers under which an NPU is offered."""
        count = self.count(npu)
        if count == 1:
            return (npu.id,)
        return tuple(slot_id(npu.id, slot) for slot in range(count))

    def resource(self, npu: Npu, name: str) -> str:
        """Return the resource of an NPU whose whole is offered as ``name``."""
        return f"{name}{SHARED_SUFFIX}" if self.own_name and self.count(npu) > 1 else name


#: One slot that is the whole NPU.
WHOLE = Sharing()


def core_hint(cores: int | None, slot: int, slots: int) -> tuple[int, ...]:
    """Return the cores to advise for a slot of an NPU: all of them where it is not divided.

    Neighbouring cores go together, the first slots getting more, because the runtime's core masks
    know 0, 1, 2, 0 and 1, and all three. Slots beyond the cores start over at core 0.
    """
    if cores is None:
        return ()
    if slots >= cores:
        return (slot % cores,) if slots > 1 else tuple(range(cores))
    size, larger = divmod(cores, slots)
    first = slot * size + min(slot, larger)
    return tuple(range(first, first + size + (slot < larger)))


def preferred(
    devices: Mapping[str, str],
    available: Collection[str],
    required: Sequence[str],
    size: int,
) -> tuple[str, ...]:
    """Return ``size`` of the ``available`` identifiers, ``required`` ones first, each once.

    ``devices`` gives the device of every identifier that is listed. A container gets slots of as
    many devices as there are, the ones with the fewest slots in use first: two slots of one device
    are no more than one. Slots that are listed and not available are in use or withdrawn, and both
    speak against their device. Fewer than ``size`` come back where there are not enough.
    """
    chosen = list(dict.fromkeys(required))
    free = set(available) - set(chosen)
    used = Counter(
        device for identifier, device in devices.items() if identifier not in set(available)
    )
    taken = Counter(devices.get(identifier, identifier) for identifier in chosen)
    while len(chosen) < size and free:
        best = min(
            free,
            key=lambda identifier: (
                taken[devices.get(identifier, identifier)],
                used[devices.get(identifier, identifier)],
                sort_key(identifier),
            ),
        )
        free.remove(best)
        chosen.append(best)
        taken[devices.get(best, best)] += 1
    return tuple(chosen)

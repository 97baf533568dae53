"""Names that become label values: unique and of bounded length.

Zone types, cooling devices and board names are text from a kernel or a device tree. A series must
not appear twice, and a garbled name must not become a label of kilobytes that storages refuse.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from npu.model import TripPoint

#: The kernel's own bound on zone types is 20 characters (``THERMAL_NAME_LENGTH``).
SENSOR_CHARACTERS: Final = 64
#: For names of boards, drivers and libraries.
TEXT_CHARACTERS: Final = 128
_CUT: Final = "…"


class LongNameError(Exception):
    """A name was too long for a label and was cut."""

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(f"name of {len(name)} characters cut to {limit}: {name[:limit]!r}")


def bounded(name: str, limit: int, cut: list[Exception]) -> str:
    """Return ``name`` with at most ``limit`` characters; a cut is noted in ``cut``."""
    if len(name) <= limit:
        return name
    cut.append(LongNameError(name, limit))
    return name[: limit - len(_CUT)] + _CUT


def unique_names(names: Iterable[str]) -> list[str]:
    """Return ``names`` with repeated ones told apart: the second ``gpu`` is ``gpu-2``.

    The kernel allows several zones of one type, and a series must not appear twice.
    """
    seen: Counter[str] = Counter()
    taken: set[str] = set()
    unique: list[str] = []
    for name in names:
        seen[name] += 1
        candidate = name if seen[name] == 1 else f"{name}-{seen[name]}"
        while candidate in taken:
            seen[name] += 1
            candidate = f"{name}-{seen[name]}"
        taken.add(candidate)
        unique.append(candidate)
    return unique


def sensor_names(names: Iterable[str], cut: list[Exception]) -> list[str]:
    """Return a label value for each name, in their order."""
    return unique_names(bounded(name, SENSOR_CHARACTERS, cut) for name in names)


def trip_names(trips: Sequence[TripPoint]) -> list[str]:
    """Return a label value per trip point: its kind, numbered where a kind occurs repeatedly."""
    kinds = [trip.kind[:SENSOR_CHARACTERS] for trip in trips]
    totals = Counter(kinds)
    seen: Counter[str] = Counter()
    labels: list[str] = []
    for kind in kinds:
        labels.append(f"{kind}-{seen[kind]}" if totals[kind] > 1 else kind)
        seen[kind] += 1
    return labels

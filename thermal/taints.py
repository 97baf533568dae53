"""The taint list of a Node: our entries as they should be, all others as they are. Pure.

The list is atomic (``listType=atomic``): every kind of patch replaces the whole of it. So what is
sent is the whole list just read, with entries of other owners verbatim and in order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from thermal.names import OWN_TAINTS, TAINT_HOT

Taint = Mapping[str, str]
Effect = Literal["NoSchedule", "PreferNoSchedule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HotTaint:
    """The taint of a closed node; ``value`` None keeps the value that is there."""

    effect: Effect
    value: str | None = None


def merged(taints: Sequence[Taint], hot: HotTaint | None) -> list[Taint] | None:
    """Return the list to write, None where the present one is right.

    Own keys appear at most once; a present one keeps its place, a new one comes last.
    """
    present = next((taint for taint in taints if taint.get("key") == TAINT_HOT), None)
    wanted = None if hot is None else _entry(hot, present)
    result: list[Taint] = []
    for taint in taints:
        if taint.get("key") not in OWN_TAINTS:
            result.append(taint)
        elif taint is present and wanted is not None:
            result.append(wanted)
    if wanted is not None and present is None:
        result.append(wanted)
    return None if result == list(taints) else result


def applied_effect(taints: Sequence[Taint]) -> str | None:
    """Return the effect of our taint, None where it is not there."""
    return next((t.get("effect") for t in taints if t.get("key") == TAINT_HOT), None)


def _entry(hot: HotTaint, present: Taint | None) -> Taint:
    entry = {"key": TAINT_HOT, "effect": hot.effect}
    value = hot.value
    if value is None and present is not None:
        value = present.get("value")
    if value:
        entry["value"] = value
    if present is not None and dict(present) == entry:
        return present
    return entry

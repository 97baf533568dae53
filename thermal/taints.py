"""The taint list of a Node: our entries as they should be, all others as they are. Pure.

The list is atomic (``listType=atomic``): every kind of patch replaces the whole of it. So what is
sent is the whole list just read, with entries of other owners verbatim and in order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from thermal.names import OWN_TAINTS, TAINT_CRITICAL, TAINT_HOT

Taint = Mapping[str, str]
Effect = Literal["NoSchedule", "PreferNoSchedule"]

_CRITICAL: Taint = {"key": TAINT_CRITICAL, "effect": "NoExecute"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HotTaint:
    """The taint of a closed node; ``value`` None keeps the value that is there."""

    effect: Effect
    value: str | None = None


def merged(
    taints: Sequence[Taint], hot: HotTaint | None, *, critical: bool = False
) -> list[Taint] | None:
    """Return the list to write, None where the present one is right.

    ``critical`` asks for the taint that deletes Pods. Own keys appear at most once; a present one
    keeps its place, a new one comes last.
    """
    present = {key: _first(taints, key) for key in OWN_TAINTS}
    wanted: dict[str, Taint] = {}
    if hot is not None:
        wanted[TAINT_HOT] = _entry(hot, present[TAINT_HOT])
    if critical:
        # An entry that is there keeps its timeAdded, which the API server sets.
        wanted[TAINT_CRITICAL] = present[TAINT_CRITICAL] or _CRITICAL
    result: list[Taint] = []
    for taint in taints:
        key = taint.get("key", "")
        if key not in OWN_TAINTS:
            result.append(taint)
        elif taint is present[key] and key in wanted:
            result.append(wanted[key])
    result += [wanted[key] for key in sorted(wanted, reverse=True) if present[key] is None]
    return None if result == list(taints) else result


def expels(taints: Sequence[Taint]) -> bool:
    """Tell whether our taint that deletes Pods is there."""
    return _first(taints, TAINT_CRITICAL) is not None


def _first(taints: Sequence[Taint], key: str) -> Taint | None:
    return next((taint for taint in taints if taint.get("key") == key), None)


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

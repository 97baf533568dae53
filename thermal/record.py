"""The ownership record on a Node: what the guard decided last. Pure.

It is small, changes only on transitions, and is all a new leader needs: the taints themselves stay
when a guard stops, and the record says in which state its successor continues.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from npu.heat import Heat

_ENTRIES_LIMIT = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """State of the node and, per device, last known state and entries into ``hot``.

    ``applied`` is the effect of the taint the record was written with, None without one. ``since``
    is the wall time of the last change of state, for people.
    """

    state: Heat
    applied: str | None = None
    since: str = ""
    devices: Mapping[str, Heat] = field(default_factory=dict)
    hot_entries: Mapping[str, int] = field(default_factory=dict)


def encode(record: Record) -> str:
    """Return the annotation for a record."""
    data: dict[str, object] = {"state": record.state.value}
    if record.applied is not None:
        data["applied"] = record.applied
    if record.since:
        data["since"] = record.since
    data["devices"] = {device: state.value for device, state in sorted(record.devices.items())}
    entries = {device: count for device, count in sorted(record.hot_entries.items()) if count}
    if entries:
        data["hotEntries"] = entries
    return json.dumps(data, separators=(",", ":"))


def decode(text: str | None) -> Record | None:
    """Return the record in an annotation, None where there is none that can be read."""
    try:
        data = json.loads(text or "")
        state = Heat(data["state"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    applied, since = data.get("applied"), data.get("since")
    return Record(
        state=state,
        applied=applied if isinstance(applied, str) else None,
        since=since if isinstance(since, str) else "",
        devices={
            device: Heat(value)
            for device, value in _items(data.get("devices"))
            if isinstance(value, str) and value in tuple(Heat)
        },
        hot_entries={
            device: min(max(0, value), _ENTRIES_LIMIT)
            for device, value in _items(data.get("hotEntries"))
            if isinstance(value, int)
        },
    )


def _items(data: object) -> list[tuple[str, object]]:
    return list(data.items()) if isinstance(data, dict) else []

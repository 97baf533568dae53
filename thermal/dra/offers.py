"""What a plugin page says about the devices of its node. Pure; nothing on it is trusted."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from npu import ids
from npu.names import ALL_DRA_DRIVERS

Attribute = str | int | bool

#: More of one driver on a node are not published: four ResourceSlices full.
DEVICE_LIMIT = 256
_ATTRIBUTES_LIMIT = 16
_TEXT_LIMIT = 64  # bytes
_REASON_LIMIT = 63
_ATTRIBUTE = re.compile(r"[A-Za-z][A-Za-z0-9]{0,31}")
_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})(\.(0|[1-9][0-9]{0,8})){2}")
_REASON = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_STATES = frozenset({"healthy", "unhealthy", "withdrawn"})
#: The one attribute that is a version, which claims compare as such.
VERSION_ATTRIBUTE = "driverVersion"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedDevice:
    """A device. ``state`` is healthy, unhealthy (broken) or withdrawn (well, and not to be had)."""

    name: str
    state: str
    reason: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedDriver:
    """A driver of a node; ``registered`` tells whether the kubelet knows it.

    ``left_out`` counts devices beyond those.
    """

    name: str
    registered: bool
    devices: tuple[OfferedDevice, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOffer:
    """A page: whose devices it lists, as it says itself, and the drivers."""

    pool: str
    drivers: tuple[OfferedDriver, ...]


def node_offer(page: bytes) -> NodeOffer:
    """Return what a page says; what makes no sense is left out. Raises ValueError for no page."""
    try:
        data = json.loads(page)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("pool"), str):
        raise TypeError("not a page of the plugin in mode dra")
    found: dict[str, OfferedDriver] = {}
    for item in _objects(data.get("drivers")):
        name = item.get("name")
        if name in ALL_DRA_DRIVERS and name not in found:
            devices = _devices(item.get("devices"))
            found[name] = OfferedDriver(
                name=name,
                registered=item.get("registered") is True,
                devices=devices[:DEVICE_LIMIT],
                left_out=max(0, len(devices) - DEVICE_LIMIT),
            )
    return NodeOffer(pool=data["pool"], drivers=tuple(found.values()))


def _devices(items: object) -> tuple[OfferedDevice, ...]:
    found: dict[str, OfferedDevice] = {}
    for item in _objects(items):
        name, state = str(item.get("name", "")), str(item.get("state"))
        if not _is_identifier(name) or state not in _STATES:
            continue
        reason = str(item.get("reason", ""))[:_REASON_LIMIT]
        found[name] = OfferedDevice(
            name=name,
            state=state,
            reason=reason if _REASON.fullmatch(reason) else "",
            attributes=_attributes(item.get("attributes")),
        )
    return tuple(found[name] for name in sorted(found, key=ids.sort_key))


def _attributes(values: object) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    for name, value in values.items() if isinstance(values, dict) else ():
        if not _ATTRIBUTE.fullmatch(name) or len(found) >= _ATTRIBUTES_LIMIT:
            continue
        if name == VERSION_ATTRIBUTE and not (isinstance(value, str) and _VERSION.fullmatch(value)):
            continue
        if isinstance(value, str):
            found[name] = _cut(value)
        elif isinstance(value, bool) or (isinstance(value, int) and abs(value) < 1 << 53):
            found[name] = value
    return found


def _cut(text: str) -> str:
    """Return as much of a text as an attribute holds, whose limit is in bytes, as UTF-8."""
    return text.encode(errors="replace")[:_TEXT_LIMIT].decode(errors="ignore")


def _is_identifier(name: str) -> bool:
    try:
        ids.device_of(name)
    except ValueError:
        return False
    return True


def _objects(items: object) -> list[dict[str, object]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []

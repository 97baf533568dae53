"""Labels that tell which NPU a node has. Pure.

A label somebody set by hand belongs to him: it is neither overwritten nor removed. What is ours is
recorded, with its value, in an annotation; a value that differs from the record was changed by
somebody else. Missing data removes nothing: a driver that is away for an upgrade comes back.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from thermal.names import INVENTORY_LABELS
from thermal.readings import DeviceSample

_VALUE = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,2})\.([0-9]{1,2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPlan:
    """Labels to set (None removes one) and the record of what is ours afterwards."""

    changes: Mapping[str, str | None]
    owned: Mapping[str, str]


def labels_of(devices: Sequence[DeviceSample]) -> dict[str, str]:
    """Return the labels for a node with these devices; a value that is not known is left out."""
    labels: dict[str, str | None] = {}
    rockchip = [device for device in devices if device.vendor == "rockchip"]
    huawei = [device for device in devices if device.vendor == "huawei"]
    if rockchip:
        first = rockchip[0]
        labels |= {
            "rockchip.com/npu": "true",
            "rockchip.com/npu-model": first.model,
            "rockchip.com/npu-cores": None if first.cores is None else str(first.cores),
            "rockchip.com/npu-driver": first.driver,
            "rockchip.com/npu-driver-version": _version_number(first.driver_version),
        }
    if huawei:
        first = huawei[0]
        labels |= {
            "huawei.com/npu": "true",
            "huawei.com/npu-model": first.model,
            "huawei.com/npu-count": str(len(huawei)),
            "huawei.com/npu-driver-version": _version_number(first.driver_version),
        }
    return {key: value for key, value in labels.items() if value and _VALUE.fullmatch(value)}


def plan(
    labels: Mapping[str, str], owned: Mapping[str, str], wanted: Mapping[str, str]
) -> LabelPlan:
    """Compare a node's labels with the wanted ones and the record of what is ours."""
    kept = {key: value for key, value in owned.items() if labels.get(key, value) == value}
    changes: dict[str, str | None] = {}
    for key, value in wanted.items():
        if key in labels and key not in kept:
            continue
        if labels.get(key) != value:
            changes[key] = value
        kept[key] = value
    return LabelPlan(changes=changes, owned=kept)


def removal(labels: Mapping[str, str], owned: Mapping[str, str]) -> LabelPlan:
    """Return the plan that removes what is still as we set it."""
    ours = {key for key, value in owned.items() if labels.get(key) == value}
    return LabelPlan(changes=dict.fromkeys(sorted(ours), None), owned={})


def encode(owned: Mapping[str, str]) -> str:
    """Return the annotation for a record."""
    return json.dumps(dict(sorted(owned.items())), separators=(",", ":"))


def decode(text: str | None) -> dict[str, str]:
    """Return the record in an annotation; what is not one of our labels is ignored."""
    try:
        data = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    return {
        key: value
        for key, value in data.items()
        if key in INVENTORY_LABELS and isinstance(value, str)
    }


def _version_number(version: str | None) -> str | None:
    """Return 0.9.8 as 908, so that a node affinity can compare it with ``Gt``."""
    match = _VERSION.fullmatch(version or "")
    if match is None:
        return None
    return str(int(match[1]) * 10_000 + int(match[2]) * 100 + int(match[3]))

"""Trimmed copies of API objects: a Node is 15 to 20 kB, the guard needs a few hundred bytes of it.

Everything is read defensively: an absent field and an empty one are the same.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from thermal.names import CONDITION, HOLD_UNTIL, INVENTORY_LABELS, OVERRIDE, OWN_ANNOTATIONS
from thermal.taints import Taint

#: A decoded JSON object.
Json = dict[str, Any]

Override = Literal["disabled", "observe"]

_CONTROL_PLANE_TAINT = "node-role.kubernetes.io/control-plane"
#: On Pods of plugins that hand devices out by claims, with the value ``dra``.
_MODE_LABEL = "npu-platform.io/mode"
#: Characters of a version that are kept: it is another machine's text.
_LONGEST_VERSION = 64
_KEPT_LABELS = INVENTORY_LABELS | {OVERRIDE}
_KEPT_ANNOTATIONS = OWN_ANNOTATIONS | {OVERRIDE, HOLD_UNTIL}
_CONTROL_PLANE_LABELS = frozenset({_CONTROL_PLANE_TAINT, "node-role.kubernetes.io/etcd"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A Node. ``labels`` and ``annotations`` hold only those the guard reads or writes.

    ``allocatable`` and ``capacity`` count extended resources, the ones with a domain of their own;
    devices that are broken or withdrawn are in the second only.
    ``control_plane`` tells whether the node has that role, also where ordinary Pods may run on it.
    """

    name: str
    uid: str = ""
    resource_version: str = ""
    taints: tuple[Taint, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    condition: Mapping[str, str] | None = None
    ready: bool = False
    allocatable: Mapping[str, int] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)
    control_plane: bool = False
    #: As the kubelet tells it, for example ``containerd://2.4.2``.
    container_runtime: str = ""

    @property
    def hold_until(self) -> datetime | None:
        """Until when a person wants the taints to stay as they are; None also for nonsense."""
        try:
            until = datetime.fromisoformat(self.annotations.get(HOLD_UNTIL, ""))
        except ValueError:
            return None
        return until if until.tzinfo is not None else until.replace(tzinfo=UTC)

    @property
    def override(self) -> Override | None:
        """What a person asked for on this node, None where nothing."""
        for place in (self.labels, self.annotations):
            match place.get(OVERRIDE):
                case "disabled":
                    return "disabled"
                case "observe":
                    return "observe"
        return None

    @property
    def reserved_for_control_plane(self) -> bool:
        """Whether ordinary Pods are kept off this node anyway."""
        return any(taint.get("key") == _CONTROL_PLANE_TAINT for taint in self.taints)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """An exporter or plugin Pod; ``address`` is None until it has one.

    ``claims`` tells whether it is a plugin that hands devices out by claims.
    """

    name: str
    uid: str
    node: str
    address: str | None
    running: bool
    claims: bool = False


def node_record(node: Json, keep_labels: Collection[str] = ()) -> NodeRecord:
    """Trim a Node; ``keep_labels`` are kept beside the guard's own."""
    metadata = _object(node, "metadata")
    conditions = _object(node, "status").get("conditions") or []
    by_type = {item.get("type"): item for item in conditions}
    info = _object(_object(node, "status"), "nodeInfo")
    return NodeRecord(
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        resource_version=metadata.get("resourceVersion", ""),
        taints=tuple(_object(node, "spec").get("taints") or ()),
        labels=_kept(_object(metadata, "labels"), _KEPT_LABELS.union(keep_labels)),
        annotations=_kept(_object(metadata, "annotations"), _KEPT_ANNOTATIONS),
        condition=by_type.get(CONDITION),
        ready=by_type.get("Ready", {}).get("status") == "True",
        allocatable=_extended(_object(_object(node, "status"), "allocatable")),
        capacity=_extended(_object(_object(node, "status"), "capacity")),
        control_plane=not _CONTROL_PLANE_LABELS.isdisjoint(_object(metadata, "labels")),
        container_runtime=str(info.get("containerRuntimeVersion", ""))[:_LONGEST_VERSION],
    )


def pod_record(pod: Json) -> PodRecord:
    """Trim an exporter or plugin Pod."""
    metadata, status = _object(pod, "metadata"), _object(pod, "status")
    return PodRecord(
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        node=_object(pod, "spec").get("nodeName") or "",
        address=status.get("podIP") or None,
        running=status.get("phase") == "Running" and "deletionTimestamp" not in metadata,
        claims=_object(metadata, "labels").get(_MODE_LABEL) == "dra",
    )


def _object(parent: Json, key: str) -> Json:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def _extended(quantities: Json) -> dict[str, int]:
    """Return the counts of extended resources, which are plain numbers."""
    return {
        name: int(count)
        for name, count in quantities.items()
        if "/" in name and isinstance(count, str) and count.isascii() and count.isdigit()
    }


def _kept(values: Json, keys: Collection[str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if key in keys}

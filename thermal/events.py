"""Events on a Node, one per change a person wants to hear about. Pure.

Reason and action never contain a temperature: API server and clients group by them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from thermal.eviction import NpuPod
from thermal.groups import Group
from thermal.names import COMPONENT
from thermal.objects import Json, NodeRecord
from thermal.policy import ConditionValue

#: Events of cluster-scoped objects live here.
NAMESPACE = "default"
_NOTE_LIMIT = 1024
_STEM_LIMIT = 230


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """What an Event says."""

    kind: str
    reason: str
    action: str
    note: str


#: By reason of the new condition; reasons that are not listed are no news.
_NEWS = {
    "Hot": ("Warning", "NPUHot", "StopNewWork"),
    "Critical": ("Warning", "NPUCritical", "StopNewWork"),
    "Emergency": ("Warning", "NPUEmergency", "StopNewWork"),
    "Recovering": ("Normal", "NPUCooledDown", "Release"),
    "SensorLost": ("Warning", "NPUSensorLost", "Watch"),
}


def announcement(
    before: Mapping[str, str] | None, after: ConditionValue, *, detail: str
) -> Announcement | None:
    """Return what to announce when the condition changes from ``before`` to ``after``."""
    reason_before = (before or {}).get("reason")
    if reason_before == after.reason:
        return None
    news = _NEWS.get(after.reason)
    if after.reason == "TemperatureNormal" and reason_before == "SensorLost":
        news = ("Normal", "NPUSensorRecovered", "Release")
    if news is None:
        return None
    kind, reason, action = news
    note = f"{after.message}; {detail}" if detail else after.message
    return Announcement(kind=kind, reason=reason, action=action, note=note[:_NOTE_LIMIT])


def storm_announcement(group: Group, *, began: bool) -> Announcement:
    """Return what to announce when the storm brake is pulled or lets go."""
    where = f" with {group.kind}={group.name}" if group.is_domain else ""
    if began:
        note = f"many nodes{where} became hot at once: evictions are frozen; check the cooling"
        return Announcement(kind="Warning", reason="NPUStorm", action="FreezeEvictions", note=note)
    note = f"nodes{where} have been cool for a while: evictions are possible again"
    return Announcement(kind="Normal", reason="NPUStormOver", action="Release", note=note)


def eviction_announcement(node: str, *, blocked: bool) -> Announcement:
    """Return what to announce on a Pod that leaves, or should."""
    if blocked:
        note = f"node {node} is too hot; a disruption budget keeps the Pod there, tried again later"
        return Announcement(kind="Warning", reason="NPUEvictionBlocked", action="Evict", note=note)
    note = f"evicted: the NPU of node {node} is too hot"
    return Announcement(kind="Warning", reason="NPUEvicted", action="Evict", note=note)


def about_pod(pod: NpuPod) -> Json:
    """Return the reference of a Pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
    }


def about_node(node: NodeRecord) -> Json:
    """Return the reference of a Node."""
    return {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}


def about_namespace(name: str) -> Json:
    """Return the reference of a Namespace, cluster-scoped like a Node."""
    return {"apiVersion": "v1", "kind": "Namespace", "name": name}


def namespace_of(regarding: Json) -> str:
    """Return where an Event about an object lives."""
    return str(regarding.get("namespace", NAMESPACE))


def event(
    announced: Announcement, regarding: Json, *, instance: str, now: str, serial: int
) -> Json:
    """Return the ``events.k8s.io/v1`` object; ``now`` has microseconds, ``serial`` is unique."""
    stem = str(regarding["name"])[:_STEM_LIMIT].rstrip(".-")
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{stem}.{serial:x}", "namespace": namespace_of(regarding)},
        "eventTime": now,
        "type": announced.kind,
        "reason": announced.reason,
        "action": announced.action,
        "note": announced.note,
        "reportingController": COMPONENT,
        "reportingInstance": instance[:128],
        "regarding": regarding,
    }

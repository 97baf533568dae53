"""From a decision to patches of a Node. Pure.

The same functions run twice: on the trimmed copy in the cache, to see whether there is anything to
do, and on the Node just read, to compute what is sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from thermal import inventory, record, taints
from thermal.actions import StopNewWork
from thermal.names import ANNOTATION_LABELS, ANNOTATION_STATE, CONDITION, OWN_ANNOTATIONS
from thermal.objects import Json, NodeRecord
from thermal.policy import ConditionValue, Decision
from thermal.readings import DeviceSample
from thermal.record import Record
from thermal.taints import Effect, HotTaint


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """How a Node should look.

    ``critical`` asks for the taint that deletes Pods.
    ``keep_taints`` leaves the list alone whatever ``hot`` says. ``state`` is the ownership record,
    None to remove it. ``labels`` None leaves inventory labels alone.
    """

    hot: HotTaint | None = None
    critical: bool = False
    keep_taints: bool = False
    condition: ConditionValue | None = None
    state: str | None = None
    labels: Mapping[str, str] | None = None


def desired_of(
    decision: Decision,
    node: NodeRecord,
    *,
    effect: Effect | None,
    since: str,
    devices: Sequence[DeviceSample],
    paused: bool = False,
    keep_value: bool = False,
) -> Desired:
    """Return how ``node`` should look after ``decision``.

    ``effect`` None means that taints are not wanted at all. ``paused`` leaves the taints as a
    person changed them. ``keep_value`` leaves the temperature in a present taint.
    """
    if decision.forget:
        return Desired()
    stop = decision.stop
    hot = None if stop is None or effect is None else _hot_taint(stop, effect, keep_value)
    applied = taints.applied_effect(node.taints) if paused else hot.effect if hot else None
    state = Record(
        state=decision.state,
        applied=applied,
        since=since,
        devices={device.device: device.known for device in decision.devices},
        hot_entries={device.device: device.hot_entries for device in decision.devices},
    )
    return Desired(
        hot=hot,
        critical=hot is not None and _expels(decision, node),
        keep_taints=paused,
        condition=decision.condition,
        state=record.encode(state),
        labels=inventory.labels_of(devices),
    )


def without_taints(desired: Desired, *, labels: bool, condition: bool) -> Desired:
    """Return what is left of it for a Node whose devices are tainted in place of the Node."""
    return Desired(
        condition=desired.condition if condition else None,
        labels=desired.labels if labels else None,
    )


def node_patch(node: NodeRecord, desired: Desired) -> Json | None:
    """Return the merge patch for the Node itself, None where it is as it should be.

    It carries the resource version: a Node that changed since it was read refuses the patch, so a
    stale taint list can never replace a newer one.
    """
    annotations: dict[str, str | None] = {}
    if node.annotations.get(ANNOTATION_STATE) != desired.state:
        annotations[ANNOTATION_STATE] = desired.state
    metadata: Json = {}
    if desired.labels is not None:
        owned = inventory.decode(node.annotations.get(ANNOTATION_LABELS))
        plan = inventory.plan(node.labels, owned, desired.labels)
        if plan.changes:
            metadata["labels"] = dict(plan.changes)
        if plan.owned != owned:
            annotations[ANNOTATION_LABELS] = inventory.encode(plan.owned)
    if annotations:
        metadata["annotations"] = annotations
    spec: Json = {}
    if not desired.keep_taints:
        merged = taints.merged(node.taints, desired.hot, critical=desired.critical)
        if merged is not None:
            spec["taints"] = merged
    return _patch(node, metadata, spec)


def removal_patch(node: NodeRecord) -> Json | None:
    """Return the merge patch that takes away everything the guard ever wrote on the Node."""
    metadata: Json = {}
    owned = inventory.decode(node.annotations.get(ANNOTATION_LABELS))
    plan = inventory.removal(node.labels, owned)
    if plan.changes:
        metadata["labels"] = dict(plan.changes)
    present = sorted(OWN_ANNOTATIONS & node.annotations.keys())
    if present:
        metadata["annotations"] = dict.fromkeys(present)
    merged = taints.merged(node.taints, None)
    return _patch(node, metadata, {} if merged is None else {"taints": merged})


def status_patch(node: NodeRecord, condition: ConditionValue | None, now: str) -> Json | None:
    """Return the strategic merge patch for the status, None where it is as it should be.

    Conditions merge by type in a strategic merge patch only; a JSON merge patch would replace the
    kubelet's. ``now`` is wall time in RFC 3339.
    """
    present = node.condition
    if condition is None:
        if present is None:
            return None
        return {"status": {"conditions": [{"$patch": "delete", "type": CONDITION}]}}
    wanted = {
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    }
    if present is not None and all(present.get(key) == value for key, value in wanted.items()):
        return None
    entry = {"type": CONDITION, **wanted, "lastHeartbeatTime": now}
    if present is None or present.get("status") != condition.status:
        entry["lastTransitionTime"] = now
    return {"status": {"conditions": [entry]}}


def _expels(decision: Decision, node: NodeRecord) -> bool:
    """Tell whether Pods should be deleted; those of a control plane never are."""
    expel = decision.expel
    if expel is None or node.control_plane or node.reserved_for_control_plane:
        return False
    return expel.start or taints.expels(node.taints)


def _hot_taint(stop: StopNewWork, effect: Effect, keep_value: bool) -> HotTaint:  # noqa: FBT001
    celsius = None if keep_value else stop.bucket_celsius
    return HotTaint(
        effect="PreferNoSchedule" if stop.soft else effect,
        # The API server refuses a taint whose value begins with a minus sign.
        value=None if celsius is None or celsius < 0 else str(celsius),
    )


def _patch(node: NodeRecord, metadata: Json, spec: Json) -> Json | None:
    if not metadata and not spec:
        return None
    body: Json = {"metadata": {**metadata, "resourceVersion": node.resource_version}}
    if spec:
        body["spec"] = spec
    return body

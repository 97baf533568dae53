"""From a decision to the DeviceTaintRules of a node. Pure.

A rule taints devices where they are, on a node, and not the node: a hot board stops NPU work and
nothing else. Levels, like everything here: a decision names all rules that should be there.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from npu.ids import device_of
from thermal import record
from thermal.dra.slices import LABEL, SliceRecord
from thermal.fleet import NodeStatus
from thermal.names import ANNOTATION_STATE, TAINT_CRITICAL, TAINT_HOT
from thermal.objects import Json, NodeRecord
from thermal.policy import Decision
from thermal.record import Record

RULES: Final = "/apis/resource.k8s.io/v1/devicetaintrules"

#: ``None`` changes nothing and lets the API server say what would have been.
RuleEffect = Literal["None", "NoSchedule", "NoExecute"]

_NAME_LIMIT = 253
_PODS = re.compile(r"\b([0-9]{1,6}) pods? (?:would be|needs? to be) evicted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule for one device of a driver on a node, or for all of them (``device`` None)."""

    name: str
    node: str
    driver: str
    device: str | None
    effect: RuleEffect
    value: str

    @property
    def key(self) -> str:
        """The key of the taint, as on Nodes."""
        return TAINT_CRITICAL if self.effect == "NoExecute" else TAINT_HOT


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRecord:
    """A rule of ours as it is. ``verdict`` is what the API server says about its Pods."""

    rule: Rule
    resource_version: str
    state: str
    verdict: str

    @property
    def pods(self) -> int | None:
        """How many Pods are, or would be, evicted; None where the API server does not say."""
        match = _PODS.search(self.verdict)
        return None if match is None else int(match[1])


def rule_record(item: Json) -> RuleRecord:
    """Trim a DeviceTaintRule."""
    metadata, spec = item.get("metadata") or {}, item.get("spec") or {}
    selector, taint = spec.get("deviceSelector") or {}, spec.get("taint") or {}
    conditions = (item.get("status") or {}).get("conditions") or ()
    effect = taint.get("effect")
    return RuleRecord(
        rule=Rule(
            name=str(metadata.get("name", "")),
            node=str(selector.get("pool", "")),
            driver=str(selector.get("driver", "")),
            device=selector.get("device"),
            effect=effect if effect in ("NoSchedule", "NoExecute") else "None",
            value=str(taint.get("value", "")),
        ),
        resource_version=str(metadata.get("resourceVersion", "")),
        state=str((metadata.get("annotations") or {}).get(ANNOTATION_STATE, "")),
        verdict=" ".join(
            str(item.get("message", ""))
            for item in conditions
            # Of a rule that evicts nobody and does not ask who would be, it says just that.
            if item.get("type") == "EvictionInProgress" and item.get("reason") != "OtherEffect"
        ),
    )


def rules_of(
    decision: Decision,
    slices: Sequence[SliceRecord],
    *,
    enforce: bool,
    expelling: bool,
) -> tuple[Rule, ...]:
    """Return the rules that should be there after ``decision``.

    ``enforce`` False asks for the verdict only, and so does a decision that only wants a node to be
    avoided: devices have no such taint. ``expelling`` tells that running Pods are being evicted.
    """
    stop = decision.stop
    if stop is None or decision.forget:
        return ()
    expel = decision.expel
    effect: RuleEffect = "NoSchedule"
    if not enforce or stop.soft:
        effect = "None"
    elif expel is not None and (expel.start or expelling):
        effect = "NoExecute"
    found: list[Rule] = []
    published: dict[tuple[str, str], dict[str, None]] = {}
    for item in slices:
        names = {str(device.get("name", "")): None for device in item.devices}
        published.setdefault((item.node, item.driver), {}).update(names)
    for (node, driver), names in published.items():
        closed = [name for name in names if _device_of(name) in stop.devices]
        targets = [None] if closed and len(closed) == len(names) else closed
        found.extend(
            Rule(
                name=rule_name(node, driver, device),
                node=node,
                driver=driver,
                device=device,
                effect=effect,
                value=decision.state.value,
            )
            for device in targets
        )
    return tuple(found)


def rule_name(node: str, driver: str, device: str | None) -> str:
    """Return the name of a rule, the same every time."""
    tail = f"{driver}-{device}" if device else driver
    # A Node's name may be as long as a rule's; what is cut off would have to differ only there.
    return f"{node[: _NAME_LIMIT - len(tail) - 1].rstrip('-.')}-{tail}"


def state_of(status: NodeStatus, decision: Decision, rule: Rule) -> str:
    """Return the record by which the next leader goes on, kept on the rule and not on the Node."""
    return record.encode(
        Record(
            state=decision.state,
            applied=None if rule.effect == "None" else rule.effect,
            since=status.since,
            devices={device.device: device.known for device in decision.devices},
            hot_entries={device.device: device.hot_entries for device in decision.devices},
        )
    )


def new_rule(rule: Rule, state: str, *, release: str) -> Json:
    """Return a rule to create."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {
            "name": rule.name,
            "labels": {LABEL: release},
            "annotations": {ANNOTATION_STATE: state},
        },
        "spec": {"deviceSelector": _selector(rule), "taint": _taint(rule)},
    }


def rule_patch(present: RuleRecord, rule: Rule, state: str) -> Json | None:
    """Return the merge patch for a rule, None where it is as it should be."""
    body: Json = {}
    if present.rule != rule:
        body["spec"] = {"taint": _taint(rule)}
    if (present.rule.driver, present.rule.device) != (rule.driver, rule.device):
        # A null takes away what somebody put there.
        body["spec"]["deviceSelector"] = {"device": None, **_selector(rule)}
    if present.state != state:
        body["metadata"] = {"annotations": {ANNOTATION_STATE: state}}
    if not body:
        return None
    body.setdefault("metadata", {})["resourceVersion"] = present.resource_version
    return body


def marks_of(rules: Sequence[RuleRecord], node: NodeRecord) -> NodeRecord:
    """Return a copy of a Node with rules in force as if they were taints of the Node."""
    active = [item for item in rules if item.rule.effect != "None"]
    if not active:
        return node
    taints = [{"key": TAINT_HOT, "effect": "NoSchedule"}]
    if any(item.rule.effect == "NoExecute" for item in active):
        taints.append({"key": TAINT_CRITICAL, "effect": "NoExecute"})
    annotations: Mapping[str, str] = {**node.annotations, ANNOTATION_STATE: active[0].state}
    return replace(node, taints=(*node.taints, *taints), annotations=annotations)


def remarks_of(rules: Iterable[RuleRecord]) -> dict[str, tuple[str, ...]]:
    """Return what the API server says about the Pods of hot devices, by node."""
    found: dict[str, tuple[str, ...]] = {}
    for item in rules:
        if item.verdict:
            found[item.rule.node] = (*found.get(item.rule.node, ()), item.verdict)
    return found


def _device_of(name: str) -> str:
    """Return the device that a published one belongs to, none for a name that is not ours."""
    try:
        return device_of(name)
    except ValueError:
        return ""


def _selector(rule: Rule) -> dict[str, str]:
    selector = {"driver": rule.driver, "pool": rule.node}
    return selector if rule.device is None else {**selector, "device": rule.device}


def _taint(rule: Rule) -> dict[str, str]:
    return {"key": rule.key, "value": rule.value, "effect": rule.effect}

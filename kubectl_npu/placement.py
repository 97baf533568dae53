"""Which nodes the scheduler would consider for a Pod: labels, affinity, taints. Pure.

The rules are those of Kubernetes: ``nodeSelector`` and required node affinity must match, and every
taint with ``NoSchedule`` or ``NoExecute`` must be tolerated.
"""

from collections.abc import Callable, Mapping, Sequence

from kubectl_npu.client import Json

_CLOSING = ("NoSchedule", "NoExecute")
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def selected(pod: Json, node: Json) -> bool:
    """Tell whether the labels of a node are what a Pod asks for."""
    labels: Mapping[str, str] = node["metadata"].get("labels", {})
    wanted: Mapping[str, str] = pod["spec"].get("nodeSelector", {})
    if not wanted.items() <= labels.items():
        return False
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(
        all(_matches(rule, labels) for rule in term.get("matchExpressions", []))
        and all(_matches(rule, fields) for rule in term.get("matchFields", []))
        for term in required.get("nodeSelectorTerms", [])
        if term
    )


def closing_taints(pod: Json, node: Json) -> list[Json]:
    """Return the taints of a node that keep a Pod away, a cordon among them."""
    taints: list[Json] = list(node["spec"].get("taints", []))
    if node["spec"].get("unschedulable") and not any(t["key"] == _UNSCHEDULABLE for t in taints):
        taints.append({"key": _UNSCHEDULABLE, "effect": "NoSchedule"})
    tolerations = pod["spec"].get("tolerations", [])
    return [
        taint
        for taint in taints
        if taint.get("effect") in _CLOSING
        and not any(_tolerates(toleration, taint) for toleration in tolerations)
    ]


def taint_text(taint: Json) -> str:
    """Return a taint as kubectl writes it."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    key = toleration.get("key")
    if toleration.get("operator", "Equal") == "Exists":
        return not key or key == taint["key"]
    return bool(key == taint["key"] and toleration.get("value", "") == taint.get("value", ""))


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _greater(label: str, values: Sequence[str]) -> bool:
    have, bound = _number(label), _number(values[0]) if values else None
    return have is not None and bound is not None and have > bound


def _less(label: str, values: Sequence[str]) -> bool:
    have, bound = _number(label), _number(values[0]) if values else None
    return have is not None and bound is not None and have < bound


_PRESENT: Mapping[str, Callable[[str, Sequence[str]], bool]] = {
    "In": lambda label, values: label in values,
    "NotIn": lambda label, values: label not in values,
    "Exists": lambda _label, _values: True,
    "DoesNotExist": lambda _label, _values: False,
    "Gt": _greater,
    "Lt": _less,
}
#: Operators that a node without the label satisfies.
_ABSENT = ("NotIn", "DoesNotExist")


def _matches(rule: Json, labels: Mapping[str, str]) -> bool:
    label, operator = labels.get(rule["key"]), rule["operator"]
    if label is None:
        return operator in _ABSENT
    return operator in _PRESENT and _PRESENT[operator](label, rule.get("values", []))

"""The admission policy, not RBAC, is what stops a stolen guard token."""

import contextlib
import json
from collections.abc import Iterator
from functools import partial

import pytest

from ci.command import CommandError
from ci.demo.story import HOT_TAINT, NAMESPACE
from ci.kube import Json, Kube, until
from tests.cluster.platform.installed import OWN, Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

POLICY = "npu-platform-guard"
CRITICAL = f"{OWN}critical"
MERGE = "--type=merge"
STRATEGIC = "--type=strategic"


def forbidden_patches(node: Json) -> dict[str, tuple[str, str, Json]]:
    """Return forbidden writes: name → subresource, patch type, patch."""
    taints = node["spec"].get("taints", [])
    foreign = {"key": "example.com/x", "value": "1", "effect": "NoSchedule"}
    ready = {"type": "Ready", "status": "False", "reason": "Stolen", "message": "x"}
    return {
        "foreign taint": ("", MERGE, {"spec": {"taints": [*taints, foreign]}}),
        "cordon": ("", MERGE, {"spec": {"unschedulable": True}}),
        "foreign label": ("", MERGE, {"metadata": {"labels": {"example.com/x": "1"}}}),
        "role label": (
            "",
            MERGE,
            {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
        ),
        "foreign annotation": ("", MERGE, {"metadata": {"annotations": {"example.com/x": "1"}}}),
        "label through status": (
            "status",
            MERGE,
            {"metadata": {"labels": {"rockchip.com/npu-model": "forged"}}},
        ),
        "capacity": ("status", MERGE, {"status": {"capacity": {"example.com/x": "1"}}}),
        "ready condition": ("status", STRATEGIC, {"status": {"conditions": [ready]}}),
    }


def _undo(name: str) -> tuple[str, str, Json] | None:
    """Return the patch that takes a successful foreign write back, for an administrator."""
    return {
        "cordon": ("", MERGE, {"spec": {"unschedulable": None}}),
        "foreign label": ("", MERGE, {"metadata": {"labels": {"example.com/x": None}}}),
        "role label": (
            "",
            MERGE,
            {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": None}}},
        ),
        "foreign annotation": ("", MERGE, {"metadata": {"annotations": {"example.com/x": None}}}),
        "label through status": (
            "status",
            MERGE,
            {"metadata": {"labels": {"rockchip.com/npu-model": None}}},
        ),
        "capacity": ("status", MERGE, {"status": {"capacity": {"example.com/x": None}}}),
    }.get(name)


@pytest.fixture
def account(platform: Platform) -> Iterator[str]:
    """The guard's account, made cluster-admin, with the guards themselves out of the way."""
    kube = platform.kube
    guard = platform.kube.items("deployments", "-n", NAMESPACE)[0]
    name = guard["spec"]["template"]["spec"]["serviceAccountName"]
    user = f"system:serviceaccount:{NAMESPACE}:{name}"
    kube.kubectl(
        "create",
        "clusterrolebinding",
        "policy-test",
        "--clusterrole=cluster-admin",
        f"--serviceaccount={NAMESPACE}:{name}",
    )
    yield user
    kube.delete("clusterrolebinding", "policy-test")


def write(kube: Kube, user: str | None, node: str, patch: tuple[str, str, Json], *more: str) -> str:
    """Patch a node as ``user``, or as the administrator."""
    subresource, kind, body = patch
    arguments = [f"--subresource={subresource}"] if subresource else []
    if user is not None:
        arguments.append(f"--as={user}")
    return kube.kubectl("patch", "node", node, kind, "-p", json.dumps(body), *arguments, *more)


def _policy(kube: Kube) -> Json:
    found = [
        item
        for item in kube.items("validatingadmissionpolicies")
        if POLICY in item["metadata"]["name"]
    ]
    assert len(found) == 1
    return found[0]


def misshaped_patches(node: Json) -> dict[str, tuple[str, str, Json]]:
    """Return writes of what is the guard's in a form it never has, and of what is a person's."""
    taints = [t for t in node["spec"].get("taints", []) if not t["key"].startswith(OWN)]
    hot = {"key": HOT_TAINT, "value": "80"}

    def tainted(*own: Json) -> tuple[str, str, Json]:
        return "", MERGE, {"spec": {"taints": [*taints, *own]}}

    def annotated(key: str) -> tuple[str, str, Json]:
        return "", MERGE, {"metadata": {"annotations": {f"{OWN}{key}": "disabled"}}}

    return {
        "hot deletes Pods": tainted({**hot, "effect": "NoExecute"}),
        "critical without deleting": tainted({"key": CRITICAL, "effect": "NoSchedule"}),
        "hot twice": tainted(
            {**hot, "effect": "NoSchedule"}, {**hot, "effect": "PreferNoSchedule"}
        ),
        "a third key": tainted({"key": f"{OWN}other", "effect": "NoSchedule"}),
        "override by annotation": annotated("guard"),
        "hold by annotation": annotated("hold-until"),
        "override by label": ("", MERGE, {"metadata": {"labels": {f"{OWN}guard": "disabled"}}}),
        "finalizer": ("", MERGE, {"metadata": {"finalizers": ["example.com/x"]}}),
    }


def own_patches(node: Json) -> dict[str, tuple[str, str, Json]]:
    """Return every kind of write the guard makes."""
    taints = [t for t in node["spec"].get("taints", []) if not t["key"].startswith(OWN)]
    hot = {"key": HOT_TAINT, "value": "80"}
    critical = {"key": CRITICAL, "effect": "NoExecute"}
    condition = {"type": "NPUOverheated", "status": "False", "reason": "Cool", "message": "x"}
    return {
        "closed": (
            "",
            MERGE,
            {"spec": {"taints": [*taints, {**hot, "effect": "NoSchedule"}]}},
        ),
        "avoided": (
            "",
            MERGE,
            {"spec": {"taints": [*taints, {**hot, "effect": "PreferNoSchedule"}]}},
        ),
        "last resort": (
            "",
            MERGE,
            {"spec": {"taints": [*taints, {**hot, "effect": "NoSchedule"}, critical]}},
        ),
        "released": ("", MERGE, {"spec": {"taints": taints}}),
        "record": ("", MERGE, {"metadata": {"annotations": {f"{OWN}test": "1"}}}),
        "inventory": ("", MERGE, {"metadata": {"labels": {"rockchip.com/npu-model": "rk3588"}}}),
        "condition": ("status", STRATEGIC, {"status": {"conditions": [condition]}}),
        "no condition": (
            "status",
            STRATEGIC,
            {"status": {"conditions": [{"$patch": "delete", "type": "NPUOverheated"}]}},
        ),
    }


def assert_fenced(kube: Kube, user: str, node: str) -> None:
    """Foreign and misshaped writes are refused by the policy and say why; own writes pass."""
    policy = _policy(kube)["metadata"]["name"]
    seen = kube.node(node)
    for name, patch in (forbidden_patches(seen) | misshaped_patches(seen)).items():
        with pytest.raises(CommandError) as denied:
            write(kube, user, node, patch)
        assert policy in str(denied.value), name
        assert "denied request" in str(denied.value), name
    with pytest.raises(CommandError, match=policy):
        kube.kubectl("delete", "node", node, f"--as={user}", "--dry-run=server")
    # Not stored: the last resort would empty the node.
    for patch in own_patches(seen).values():
        write(kube, user, node, patch, "--dry-run=server")


def assert_type_checked(kube: Kube) -> None:
    """The API server has no doubts about any expression of the policy."""
    policy = until(
        lambda: _policy(kube),
        lambda seen: "typeChecking" in seen.get("status", {}),
        seconds=60,
        what="type check of the policy",
    )
    assert not policy["status"]["typeChecking"].get("expressionWarnings")


def test_policy_type_checks_without_warnings(platform: Platform) -> None:
    """The API server has no doubts about any expression."""
    assert_type_checked(platform.kube)


def test_foreign_writes_are_denied_by_the_policy_even_for_cluster_admin(
    platform: Platform, account: str
) -> None:
    """Each denial names the policy and says what may not change; own writes pass."""
    assert_fenced(platform.kube, account, platform.boards[0])


def test_rights_of_the_account_without_the_policy(platform: Platform) -> None:
    """RBAC alone: what the guard does, and no more than patching and evicting."""
    guard = platform.kube.items("deployments", "-n", NAMESPACE)[0]
    name = guard["spec"]["template"]["spec"]["serviceAccountName"]
    user = f"system:serviceaccount:{NAMESPACE}:{name}"
    kube = platform.kube

    def may(verb: str, what: str, *more: str) -> bool:
        with contextlib.suppress(CommandError):
            words = ("auth", "can-i", verb, what, f"--as={user}", "-n", "default", *more)
            return kube.kubectl(*words).strip() == "yes"
        return False

    assert may("patch", "nodes")
    assert may("patch", "nodes", "--subresource=status")
    assert may("create", "pods", "--subresource=eviction")
    assert may("create", "events.events.k8s.io")
    for verb, what in (
        *(("delete", "pods"), ("patch", "pods"), ("create", "pods"), ("get", "secrets")),
        *(("update", "nodes"), ("create", "nodes"), ("delete", "nodes")),
        ("delete", "validatingadmissionpolicies"),
    ):
        assert not may(verb, what), f"{verb} {what}"


def test_without_the_binding_the_same_writes_succeed(platform: Platform, account: str) -> None:
    """It is the policy that denies: with its binding gone nothing else stops these writes."""
    kube = platform.kube
    node = platform.boards[0]
    binding = next(
        item
        for item in kube.items("validatingadmissionpolicybindings")
        if POLICY in item["metadata"]["name"]
    )
    kube.delete("validatingadmissionpolicybinding", binding["metadata"]["name"])
    try:
        for name, patch in forbidden_patches(kube.node(node)).items():
            if name == "ready condition":
                continue  # would evict everything from the node; denied above
            until(
                partial(_written, kube, account, node, patch),
                seconds=30,
                what=f"{name} written without the binding",
            )
            undo = _undo(name)
            if undo is not None:
                write(kube, None, node, undo)
        kube.kubectl("taint", "node", node, "example.com/x-")
    finally:
        for field in ("resourceVersion", "uid", "creationTimestamp", "generation"):
            binding["metadata"].pop(field, None)
        kube.apply(binding)


def _written(kube: Kube, user: str, node: str, patch: tuple[str, str, Json]) -> bool:
    write(kube, user, node, patch)
    return True

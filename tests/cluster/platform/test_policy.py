"""The admission policy, not RBAC, is what stops a stolen guard token."""

import json
from collections.abc import Iterator
from functools import partial

import pytest

from ci.command import CommandError
from ci.demo.story import HOT_TAINT, NAMESPACE
from ci.kube import Json, until
from tests.cluster.platform.installed import OWN, Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

POLICY = "npu-platform-guard"
MERGE = "--type=merge"
STRATEGIC = "--type=strategic"


def _patches(node: Json) -> dict[str, tuple[str, str, Json]]:
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


def _write(platform: Platform, user: str | None, node: str, patch: tuple[str, str, Json]) -> str:
    subresource, kind, body = patch
    arguments = [f"--subresource={subresource}"] if subresource else []
    if user is not None:
        arguments.append(f"--as={user}")
    return platform.kube.kubectl("patch", "node", node, kind, "-p", json.dumps(body), *arguments)


def _policy(platform: Platform) -> Json:
    found = [
        item
        for item in platform.kube.items("validatingadmissionpolicies")
        if POLICY in item["metadata"]["name"]
    ]
    assert len(found) == 1
    return found[0]


def test_policy_type_checks_without_warnings(platform: Platform) -> None:
    """The API server has no doubts about any expression."""
    policy = until(
        lambda: _policy(platform),
        lambda seen: "typeChecking" in seen.get("status", {}),
        seconds=60,
        what="type check of the policy",
    )

    assert not policy["status"]["typeChecking"].get("expressionWarnings")


def test_foreign_writes_are_denied_by_the_policy_even_for_cluster_admin(
    platform: Platform, account: str
) -> None:
    """Each denial names the policy and says what may not change; own writes pass."""
    node = platform.boards[0]
    policy = _policy(platform)["metadata"]["name"]
    for name, patch in _patches(platform.kube.node(node)).items():
        with pytest.raises(CommandError) as denied:
            _write(platform, account, node, patch)
        assert policy in str(denied.value), name
        assert "denied request" in str(denied.value), name

    own = {"metadata": {"annotations": {f"{OWN}test": "1"}}}
    _write(platform, account, node, ("", MERGE, own))
    _write(
        platform, account, node, ("", MERGE, {"metadata": {"annotations": {f"{OWN}test": None}}})
    )
    taints = platform.kube.node(node)["spec"].get("taints", [])
    hot = {"key": HOT_TAINT, "value": "80", "effect": "NoSchedule"}
    _write(platform, account, node, ("", MERGE, {"spec": {"taints": [*taints, hot]}}))


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
        for name, patch in _patches(kube.node(node)).items():
            if name == "ready condition":
                continue  # would evict everything from the node; denied above
            until(
                partial(_written, platform, account, node, patch),
                seconds=30,
                what=f"{name} written without the binding",
            )
            undo = _undo(name)
            if undo is not None:
                _write(platform, None, node, undo)
        kube.kubectl("taint", "node", node, "example.com/x-")
    finally:
        for field in ("resourceVersion", "uid", "creationTimestamp", "generation"):
            binding["metadata"].pop(field, None)
        kube.apply(binding)


def _written(platform: Platform, user: str, node: str, patch: tuple[str, str, Json]) -> bool:
    _write(platform, user, node, patch)
    return True

"""Shares of teams: quotas, limit ranges, priority classes and the policy that requires them."""

from collections.abc import Callable

import pytest

from ci.chart import Json

Render = Callable[..., list[Json]]


@pytest.fixture
def teams(render: Render) -> dict[tuple[str, str, str], Json]:
    """The objects of the teams example: kind, namespace (or ""), name → object."""
    return {
        (
            item["kind"],
            item["metadata"].get("namespace", ""),
            item["metadata"]["name"],
        ): item
        for item in render("teams-values")
        if item["metadata"]["labels"].get("app.kubernetes.io/component") == "teams"
    }


def test_default_has_no_team_object(render: Render) -> None:
    """Nobody is limited who did not ask for it."""
    kinds = {item["kind"] for item in render()}
    assert not kinds & {"ResourceQuota", "LimitRange", "PriorityClass", "Namespace"}


def test_numbers_are_quantities(teams: dict[tuple[str, str, str], Json]) -> None:
    """Large numbers of a values file are written without an exponent."""
    hard = teams["ResourceQuota", "team-a", "npu"]["spec"]["hard"]
    assert hard == {
        "requests.rockchip.com/npu": "2",
        "requests.rockchip.com/npu.shared": "4",
        "pods": "20",
        "requests.memory": "8589934592",
    }


def test_a_share_gives_containers_nothing(teams: dict[tuple[str, str, str], Json]) -> None:
    """A LimitRange has every container ask, if for 0: a board without a healthy NPU refuses it."""
    assert ("ResourceQuota", "team-a", "npu") in teams
    assert ("LimitRange", "team-a", "npu") not in teams


def test_limit_has_a_default_of_zero(render: Render) -> None:
    """A maximum without a default would give an NPU to every container."""
    hard = {"requests.rockchip.com/npu": 2, "requests.rockchip.com/npu.shared": 4, "pods": 20}
    entry = {"namespace": "team-a", "hard": hard, "limitRange": True}
    (found,) = (item for item in render(quotas=[entry]) if item["kind"] == "LimitRange")
    (limit,) = found["spec"]["limits"]
    assert limit["type"] == "Container"
    assert limit["max"] == {"rockchip.com/npu": "1", "rockchip.com/npu.shared": "1"}
    assert set(limit["default"]) == set(limit["max"])
    assert set(limit["default"].values()) == {"0"}
    assert limit["defaultRequest"] == limit["default"]


def test_a_maximum_is_a_limit_range(teams: dict[tuple[str, str, str], Json]) -> None:
    """Who names a maximum gets it; what the entry says wins over what follows from its quota."""
    (limit,) = teams["LimitRange", "team-b", "npu"]["spec"]["limits"]
    assert limit["max"] == {"huawei.com/Ascend910": "8"}


def test_a_maximum_without_its_limit_range(render: Render) -> None:
    """What is said outright wins."""
    hard = {"requests.rockchip.com/npu": 2}
    entry = {"namespace": "team-a", "hard": hard, "limitRange": False}
    objects = render(quotas=[entry | {"maxPerContainer": {"rockchip.com/npu": 1}}])
    assert not [item for item in objects if item["kind"] == "LimitRange"]


def test_a_second_quota_of_a_namespace(teams: dict[tuple[str, str, str], Json]) -> None:
    """It is for Pods of one class."""
    assert teams["ResourceQuota", "team-b", "batch"]["spec"]["scopeSelector"]


def test_namespace_outlives_its_entry(teams: dict[tuple[str, str, str], Json]) -> None:
    """A team that leaves the list loses its quota, not its work."""
    annotations = teams["Namespace", "", "team-a"]["metadata"]["annotations"]
    assert annotations == {"helm.sh/resource-policy": "keep"}
    assert ("Namespace", "", "team-b") not in teams


def test_members_may_work_in_their_namespace(teams: dict[tuple[str, str, str], Json]) -> None:
    """Groups and accounts are bound to a role of the cluster's, `edit` by default."""
    binding = teams["RoleBinding", "team-a", "npu-platform-npu"]
    assert binding["roleRef"]["name"] == "edit"
    assert binding["subjects"] == [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "team-a"},
        {"kind": "ServiceAccount", "name": "deployer", "namespace": "ci"},
    ]


def test_policy_knows_namespaces_with_a_share(render: Render) -> None:
    """A quota without an NPU in it is no share of NPUs."""
    policy = next(
        item
        for item in render(
            quotas=[
                {"namespace": "with", "hard": {"requests.rockchip.com/npu": 1}},
                {"namespace": "without", "hard": {"pods": 1}},
            ],
            quotasRequired={"enabled": True, "exemptNamespaces": ["kube-system"]},
        )
        if item["kind"] == "ValidatingAdmissionPolicy" and "required" in item["metadata"]["name"]
    )
    (validation,) = policy["spec"]["validations"]
    assert "['kube-system','npu-platform','with']" in validation["expression"]
    assert "ask the administrator of the cluster" in validation["messageExpression"]


def test_claims_need_a_share_where_claims_are_served(render: Render) -> None:
    """A Pod can bring a claim in place of limits: the same namespaces and the same words."""
    required = {"quotasRequired": {"enabled": True}}

    def policies(mode: str) -> list[Json]:
        return [
            item["spec"]
            for item in render(**required, plugin={"mode": mode})
            if item["kind"] == "ValidatingAdmissionPolicy"
            and "required" in item["metadata"]["name"]
        ]

    assert len(policies("devicePlugin")) == 1
    pods, claims = policies("dra")
    assert pods["validations"] == claims["validations"]
    (rule,) = claims["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["resourceclaims"], ["CREATE"])
    classes = {
        item["metadata"]["name"]
        for item in render(plugin={"mode": "dra"})
        if item["kind"] == "DeviceClass"
    }
    (condition,) = claims["matchConditions"]
    for name in classes:
        assert condition["expression"].count(f"'{name}'") == 2

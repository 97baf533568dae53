"""Who may look, who may call whom, and who may delete."""

from collections.abc import Callable

from ci.chart import Json

Render = Callable[..., list[Json]]


def named(objects: list[Json], kind: str, name: str) -> Json:
    """Return the one object of that kind and name."""
    return next(o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name))


def test_viewers_read_and_belong_to_nobody(render: Render) -> None:
    """The roles are there to be bound; pages are open in the release's namespace alone."""
    objects = render()
    for rule in named(objects, "ClusterRole", "npu-viewer")["rules"]:
        assert set(rule["verbs"]) == {"get", "list", "watch"}
        assert not {"secrets", "pods/proxy", "nodes/proxy", "pods/log"} & set(rule["resources"])
    pages = named(objects, "Role", "npu-viewer")
    assert pages["metadata"]["namespace"] == "npu-platform"
    assert pages["rules"] == [{"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"]}]
    bound = [o for o in objects if o["kind"].endswith("Binding") and "roleRef" in o]
    assert not [o for o in bound if o["roleRef"]["name"] == "npu-viewer"]


def test_viewers_are_bound_by_value(render: Render) -> None:
    """Groups get the API group that a binding asks for, accounts must not have it."""
    account = {"kind": "ServiceAccount", "name": "board", "namespace": "wall"}
    objects = render(viewer={"subjects": [{"kind": "Group", "name": "on-call"}, account]})
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        subjects = named(objects, kind, "npu-viewer")["subjects"]
        assert subjects == [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "on-call"},
            account,
        ]


def policies(objects: list[Json]) -> dict[str, Json]:
    """Return what the NetworkPolicies of each component say together.

    Each has one for either direction: an enforcer may mix up those of one policy.
    """
    found: dict[str, Json] = {}
    for item in objects:
        if item["kind"] == "NetworkPolicy":
            component = item["metadata"]["labels"]["app.kubernetes.io/component"]
            together = found.setdefault(component, {"podSelector": item["spec"]["podSelector"]})
            assert item["spec"]["podSelector"] == together["podSelector"]
            (direction,) = item["spec"]["policyTypes"]
            together[direction.lower()] = item["spec"][direction.lower()]
    assert all({"ingress", "egress"} <= set(together) for together in found.values())
    return found


def test_policies_are_off_by_default(render: Render) -> None:
    """A wrong policy cuts off metrics without a word: it is a decision."""
    assert policies(render()) == {}


def test_node_daemons_call_nobody(render: Render) -> None:
    """Their Pods are in reach of scrapers and of the platform, and reach nothing."""
    objects = render(networkPolicies={"enabled": True})
    found = policies(objects)
    assert set(found) == {"plugin", "exporter", "guard"}
    for component in ("plugin", "exporter"):
        assert found[component]["egress"] == []
        (rule,) = found[component]["ingress"]
        assert rule["ports"] == [{"protocol": "TCP", "port": "http"}]
        assert rule["from"][0]["namespaceSelector"]["matchLabels"] == {
            "kubernetes.io/metadata.name": "monitoring"
        }
    guard = found["guard"]["egress"]
    assert guard[0] == {
        "ports": [{"protocol": "TCP", "port": 443}, {"protocol": "TCP", "port": 6443}]
    }
    exporter = named(objects, "DaemonSet", "npu-platform-exporter")
    labels = exporter["spec"]["template"]["metadata"]["labels"]
    for selector in (guard[1]["to"][0]["podSelector"], found["exporter"]["podSelector"]):
        assert selector["matchLabels"].items() <= labels.items()


def test_a_policy_selects_pods_of_its_component(render: Render) -> None:
    """Both kinds of exporter are meant, and the Pods of the CronJob."""
    for feature in ("everything-values", "ascend-values"):
        objects = render(
            feature,
            networkPolicies={"enabled": True},
            ghosts={"enabled": True},
            simulator={"enabled": feature == "everything-values"},
        )
        found = policies(objects)
        for item in objects:
            if item["kind"] in {"DaemonSet", "Deployment", "CronJob"}:
                template = (
                    item["spec"].get("template")
                    or (item["spec"]["jobTemplate"]["spec"]["template"])
                )
                labels = template["metadata"]["labels"]
                policy = found[labels["app.kubernetes.io/component"]]
                assert policy["podSelector"]["matchLabels"].items() <= labels.items()


def test_ghosts_are_deleted_by_an_account_of_their_own(render: Render) -> None:
    """The right to delete Pods is nowhere without the opt-in, and then in one account."""

    def deleting(objects: list[Json]) -> list[str]:
        return [
            o["metadata"]["name"]
            for o in objects
            for rule in o.get("rules") or ()
            if "delete" in rule["verbs"]
        ]

    assert deleting(render()) == []
    objects = render(ghosts={"enabled": True})
    assert deleting(objects) == ["npu-platform-npu-platform-ghosts"]
    job = named(objects, "CronJob", "npu-platform-ghosts")["spec"]
    spec = job["jobTemplate"]["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == "npu-platform-ghosts"
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert "--without-controller" not in spec["containers"][0]["args"]
    assert "volumes" not in spec


def test_extra_objects_are_templates(render: Render) -> None:
    """Maps and texts alike are rendered with the release."""
    text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ .Release.Name }}-text'}}"
    item = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "{{ .Release.Name }}-map"},
    }
    names = {o["metadata"]["name"] for o in render(extraObjects=[text, item])}
    assert {"npu-platform-text", "npu-platform-map"} <= names

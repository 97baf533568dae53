"""Names, labels, selectors, placement and mounts of what is installed."""

from collections.abc import Callable

import pytest

from ci import chart
from ci.chart import Json

Render = Callable[..., list[Json]]
RECOMMENDED = {
    f"app.kubernetes.io/{name}"
    for name in ("name", "instance", "version", "component", "part-of", "managed-by")
}
SELECTING = {f"app.kubernetes.io/{name}" for name in ("name", "instance", "component")}
BOARD = "/var/lib/npu-platform/board"


def named(objects: list[Json], kind: str, name: str) -> Json:
    """Return the one object of this kind and name."""
    (found,) = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
    return found


def container(item: Json) -> Json:
    """Return the only container of a workload."""
    (found,) = item["spec"]["template"]["spec"]["containers"]
    result: Json = found
    return result


def test_labels(render: Render, feature: str) -> None:
    """Every object carries the recommended labels and the user's common ones."""
    for item in render(feature):
        labels = item["metadata"]["labels"]
        assert set(labels) >= RECOMMENDED, item["metadata"]["name"]
        if feature == "everything-values":
            assert labels["team"] == "edge"


def test_selectors_never_change(render: Render, feature: str) -> None:
    """Selectors, which are immutable, hold identity only, and select their own Pods alone."""
    workloads = [o for o in render(feature) if o["kind"] in {"DaemonSet", "Deployment"}]
    for item in workloads:
        selector = item["spec"]["selector"]["matchLabels"]
        extra = {"npu-platform.io/profile"} if "plugin" in selector.values() else set()
        assert set(selector) == SELECTING | extra
        matching = [
            other["metadata"]["name"]
            for other in workloads
            if selector.items() <= other["spec"]["template"]["metadata"]["labels"].items()
        ]
        assert matching == [item["metadata"]["name"]]


def test_user_labels_do_not_break_selectors() -> None:
    """A label of the user's cannot replace one that a selector needs."""
    key = "app.kubernetes.io/component"
    text = chart.render(values={"exporter": {"podLabels": {key: "mine", "a": "b"}}})
    item = named(chart.objects(text), "DaemonSet", "npu-platform-exporter")
    labels = item["spec"]["template"]["metadata"]["labels"]
    assert (labels[key], labels["a"]) == ("exporter", "b")


def test_a_common_label_does_not_stand_there_twice() -> None:
    """A key that occurs twice in one mapping is refused by the API server."""
    key = "app.kubernetes.io/instance"
    text = chart.render(values={"commonLabels": {key: "mine", "team": "edge"}})
    assert f"{key}: mine" not in text
    assert all(o["metadata"]["labels"]["team"] == "edge" for o in chart.objects(text))


@pytest.mark.parametrize(
    ("release", "prefix"),
    [
        ("npu-platform", "npu-platform"),
        ("edge", "edge-npu-platform"),
        ("x" * 53, "x" * 40),
    ],
)
def test_names_follow_the_release(release: str, prefix: str) -> None:
    """Names start with the release and stay within what Kubernetes takes."""
    objects = chart.objects(chart.render(release=release, values={"simulator": {"enabled": True}}))
    names = {o["metadata"]["name"] for o in objects}
    assert {f"{prefix}-{c}" for c in ("plugin", "exporter", "guard", "simulator")} <= names
    # Names of roles and of cluster-wide objects may be longer.
    long = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
    for item in objects:
        short = "namespace" in item["metadata"] and item["kind"] not in long
        assert len(item["metadata"]["name"]) <= (63 if short else 253)
        if item["kind"] == "Deployment":
            assert len(item["metadata"]["name"]) + 17 <= 63


def test_cluster_wide_names_differ_between_namespaces() -> None:
    """A release takes nothing from one of the same name elsewhere; what is meant to is named."""

    def cluster_wide(namespace: str) -> set[tuple[str, str]]:
        return {
            (o["kind"], o["metadata"]["name"])
            for o in chart.objects(chart.render(namespace=namespace))
            if "namespace" not in o["metadata"]
        }

    assert cluster_wide("one") & cluster_wide("two") == {
        ("ClusterRole", "npu-platform-is-installed-once-per-cluster"),
        ("ClusterRole", "npu-viewer"),
    }


def test_namespace_is_everywhere(render: Render) -> None:
    """All lands in the namespace asked for; shares, autoscalers and dashboards land in theirs."""
    elsewhere = {
        "teams": {"team-a", "npu-system"},
        "autoscaling": {"team-z"},
        "dashboards": {"grafana"},
    }
    for item in render("everything-values"):
        # Events about Nodes live in "default".
        events = item["kind"] in {"Role", "RoleBinding"} and item["metadata"]["name"].endswith(
            "-events"
        )
        component = item["metadata"]["labels"]["app.kubernetes.io/component"]
        expected = {"default"} if events else elsewhere.get(component, {"npu-system"})
        assert item["metadata"].get("namespace") in {None, *expected}, item["metadata"]["name"]


def test_configuration_change_restarts(render: Render) -> None:
    """A changed setting changes the Pods that read it, and no others."""

    def checksums(objects: list[Json]) -> dict[str, str]:
        return {
            o["metadata"]["name"]: o["spec"]["template"]["metadata"]["annotations"][
                "checksum/config"
            ]
            for o in objects
            if o["kind"] in {"DaemonSet", "Deployment"}
        }

    before = checksums(render())
    after = checksums(render(guard={"mode": "observe"}))
    assert {name for name in before if before[name] != after[name]} == {"npu-platform-guard"}


def test_version_does_not_restart(render: Render) -> None:
    """A Pod template holds no chart version: boards do not restart for a changed dashboard."""
    for item in render():
        if item["kind"] in {"DaemonSet", "Deployment"}:
            labels = item["spec"]["template"]["metadata"]["labels"]
            assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(labels)


def test_digest_wins(render: Render) -> None:
    """An image by digest ignores every tag; a mirror replaces the registry."""
    digest = "sha256:" + "a" * 64
    objects = render(
        plugin={"image": {"digest": digest, "tag": "1"}},
        **{"global": {"imageRegistry": "mirror.example.com/"}},
    )
    images = {o["metadata"]["name"]: container(o)["image"] for o in objects
              if o["kind"] in {"DaemonSet", "Deployment"}}  # fmt: skip
    assert images["npu-platform-plugin"] == f"mirror.example.com/plugin@{digest}"
    assert images["npu-platform-exporter"].startswith("mirror.example.com/exporter:")


def test_real_boards_are_read_from_the_node(render: Render) -> None:
    """On a real board the node's own directories are mounted and paths have no prefix."""
    plugin = named(render(), "DaemonSet", "npu-platform-plugin")
    mounts = {m["mountPath"]: m for m in container(plugin)["volumeMounts"]}
    assert {"/host/sys", "/host/dev", "/host/usr"} <= set(mounts)
    assert mounts["/host/sys"]["mountPropagation"] == "HostToContainer"
    assert "--node-prefix=" in container(plugin)["args"]
    exporter = named(render(), "DaemonSet", "npu-platform-exporter")
    assert "/host/dev" not in {m["mountPath"] for m in container(exporter)["volumeMounts"]}


def test_simulated_boards_replace_the_node(render: Render) -> None:
    """With simulated boards no directory of a real one is in reach of plugin and exporter."""
    objects = render("simulator-values")
    for name in ("plugin", "exporter"):
        item = named(objects, "DaemonSet", f"npu-platform-{name}")
        volumes = item["spec"]["template"]["spec"]["volumes"]
        paths = {v["hostPath"]["path"] for v in volumes if "hostPath" in v}
        assert BOARD in paths
        assert not {"/sys", "/dev", "/usr"} & paths
    plugin = named(objects, "DaemonSet", "npu-platform-plugin")
    assert f"--node-prefix={BOARD}" in container(plugin)["args"]


def test_profiles_are_disjoint(render: Render) -> None:
    """A node is taken by exactly one plugin DaemonSet; the user's own terms stay."""
    objects = render("profiles-values")
    for name, expected in (
        ("npu-platform-plugin", {"operator": "DoesNotExist"}),
        ("npu-platform-plugin-video", {"operator": "In", "values": ["video"]}),
        ("npu-platform-plugin-small", {"operator": "In", "values": ["small"]}),
    ):
        spec = named(objects, "DaemonSet", name)["spec"]["template"]["spec"]
        terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        assert [term["matchExpressions"][-1] for term in terms] == [
            {"key": "npu-platform.io/profile"} | expected
        ] * 2
        assert terms[0]["matchExpressions"][0]["key"] == "example.com/board"
        assert terms[1]["matchFields"]


def test_monitors(render: Render) -> None:
    """Jobs have fixed names; no node daemon says itself which node it is, the guard does."""
    for item in render("monitoring-values"):
        if item["kind"] != "PodMonitor":
            continue
        component = item["metadata"]["labels"]["app.kubernetes.io/component"]
        assert item["metadata"]["labels"]["release"] == "prometheus"
        (endpoint,) = item["spec"]["podMetricsEndpoints"]
        assert endpoint["honorLabels"] is (component == "guard")
        rules = {rule.get("targetLabel"): rule for rule in endpoint["relabelings"]}
        assert rules["job"]["replacement"] == f"npu-platform-{component}"
        assert ("node" in rules) == (component != "guard")


def test_guard_finds_exporters(render: Render) -> None:
    """The guard looks for exporter Pods by labels that those have."""
    objects = render("everything-values")
    guard = next(o for o in objects if o["kind"] == "Deployment")
    argument = next(a for a in container(guard)["args"] if a.startswith("--exporter-selector="))
    selector = dict(
        pair.split("=") for pair in argument.removeprefix("--exporter-selector=").split(",")
    )
    exporter = next(
        o for o in objects if o["kind"] == "DaemonSet" and "exporter" in o["metadata"]["name"]
    )
    assert selector.items() <= exporter["spec"]["template"]["metadata"]["labels"].items()


def test_guard_is_fenced(render: Render) -> None:
    """Wherever the guard may patch nodes, a bound policy says which parts."""
    kinds = [o["kind"] for o in render()]
    assert kinds.count("ValidatingAdmissionPolicy") == 1
    binding = next(o for o in render() if o["kind"] == "ValidatingAdmissionPolicyBinding")
    assert binding["spec"]["validationActions"] == ["Deny"]
    policy = named(render(), "ValidatingAdmissionPolicy", binding["spec"]["policyName"])
    account = "system:serviceaccount:npu-platform:npu-platform-guard"
    assert account in policy["spec"]["matchConditions"][0]["expression"]


def test_plugin_sees_proc_of_a_real_board_only(render: Render) -> None:
    """Small boards tell cores in procfs; a simulated board has one of its own."""
    plugin = named(render(), "DaemonSet", "npu-platform-plugin")
    assert "--proc=/proc" in container(plugin)["args"]
    simulated = named(render(simulator={"enabled": True}), "DaemonSet", "npu-platform-plugin")
    assert "--proc=/proc" not in container(simulated)["args"]


def test_exporter_sees_proc_and_library_of_a_real_board(render: Render) -> None:
    """Its own procfs shows what drivers put there; only the library's directories are mounted."""
    objects = render(plugin={"library": {"hostDirs": ["/usr/lib", "/oem"]}})
    exporter = named(objects, "DaemonSet", "npu-platform-exporter")
    mounts = {mount["mountPath"]: mount for mount in container(exporter)["volumeMounts"]}
    volumes = exporter["spec"]["template"]["spec"]["volumes"]
    paths = {volume["hostPath"]["path"] for volume in volumes if "hostPath" in volume}

    assert "--proc=/proc" in container(exporter)["args"]
    assert {"/sys", "/usr/lib", "/oem"} <= paths
    assert "/proc" not in paths
    assert all(mounts[f"/host{path}"]["readOnly"] for path in ("/sys", "/usr/lib", "/oem"))

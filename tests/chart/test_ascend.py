"""Values for Huawei Ascend chips: names, who injects, and the exporter that runs npu-smi."""

from collections.abc import Callable

import yaml

from ci.chart import CHART, Json, objects
from ci.chart import render as render_files

Render = Callable[..., list[Json]]
LABEL = "npu-platform.io/ascend-telemetry"


def exporters(found: list[Json]) -> dict[str, Json]:
    return {
        item["metadata"]["name"]: item["spec"]["template"]["spec"]
        for item in found
        if item["kind"] == "DaemonSet" and "exporter" in item["metadata"]["name"]
    }


def configuration(found: list[Json], name: str, key: str) -> Json:
    """Return a configuration file, parsed."""
    item = next(
        item for item in found if (item["kind"], item["metadata"]["name"]) == ("ConfigMap", name)
    )
    parsed: Json = yaml.safe_load(item["data"][key])
    return parsed


def test_usual_names_are_huaweis(render: Render) -> None:
    """Manifests for Huawei's plugin need no change, and the guard counts every name."""
    found = render()
    names = configuration(found, "npu-platform-plugin", "plugin.yaml")["resourceNames"]
    assert names["ascend910"] == names["ascend910b"] == names["ascend910c"]
    resources = configuration(found, "npu-platform-guard", "guard.yaml")["resources"]
    assert {"huawei.com/Ascend910", "huawei.com/Ascend310P", "huawei.com/Ascend310"} <= {*resources}


def test_preset_for_910b() -> None:
    """One file of values gives these cards a name of their own."""
    found = objects(render_files(CHART / "values-ascend910b.yaml"))
    names = configuration(found, "npu-platform-plugin", "plugin.yaml")["resourceNames"]
    assert names["ascend910b"] == "huawei.com/Ascend910B"
    assert names["ascend910"] == "huawei.com/Ascend910"
    resources = configuration(found, "npu-platform-guard", "guard.yaml")["resources"]
    assert "huawei.com/Ascend910B" in resources


def test_names_of_chips_keep_their_form_when_others_are_shared(render: Render) -> None:
    """Chips are offered whole, so the guard must know the name without an ending."""
    found = render(plugin={"sharing": {"slots": 3, "resourceName": "shared"}})
    resources = configuration(found, "npu-platform-guard", "guard.yaml")["resources"]
    assert "huawei.com/Ascend910" in resources
    assert "rockchip.com/npu" not in resources


def test_telemetry_is_a_second_daemon_set_on_other_nodes(render: Render) -> None:
    """Nodes are divided by one label, the user's own affinity holds for both."""
    both = exporters(render("ascend-values"))
    plain, ascend = both["npu-platform-exporter"], both["npu-platform-exporter-ascend"]
    expressions = []
    for spec in (plain, ascend):
        required = spec["affinity"]["nodeAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        (term,) = required["nodeSelectorTerms"]
        own, mine = term["matchExpressions"]
        assert own["key"] == "example.com/pool"
        expressions.append(mine)
    assert expressions == [
        {"key": LABEL, "operator": "DoesNotExist"},
        {"key": LABEL, "operator": "Exists"},
    ]
    container = ascend["containers"][0]
    assert container["securityContext"]["privileged"] is True
    assert "--npu-smi=auto" in container["args"]
    assert "usr" in [volume["name"] for volume in ascend["volumes"]]
    assert not [arg for arg in plain["containers"][0]["args"] if "npu-smi" in arg]


def test_telemetry_is_off_by_default_and_never_with_simulated_boards(render: Render) -> None:
    """A simulated board's tool opens nothing, so nothing is privileged."""
    assert list(exporters(render())) == ["npu-platform-exporter"]
    simulated = exporters(
        render(simulator={"enabled": True}, exporter={"ascendTelemetry": {"enabled": True}})
    )
    assert list(simulated) == ["npu-platform-exporter"]
    container = simulated["npu-platform-exporter"]["containers"][0]
    assert "privileged" not in container["securityContext"]
    assert any("npu-smi" in argument for argument in container["args"])


def test_pods_of_both_are_found_by_guard_and_monitor(render: Render) -> None:
    """Guard and PodMonitor select by component."""
    found = render("ascend-values")
    labels = [
        item["spec"]["template"]["metadata"]["labels"]
        for item in found
        if item["kind"] == "DaemonSet" and "exporter" in item["metadata"]["name"]
    ]
    assert [label["app.kubernetes.io/component"] for label in labels] == ["exporter"] * 2

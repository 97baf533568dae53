"""Dashboards as Grafana and its operator get them."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from ci import chart
from ci.chart import Json
from ci.command import CommandError
from ci.dashboards import catalogue, grafana

Render = Callable[..., list[Json]]

BOARDS = catalogue.dashboards()
FILES = sorted(catalogue.FOLDER.glob("*.json"))
#: What we use of the Grafana operator's GrafanaDashboard, by its API reference; the schema is ours.
GRAFANA_DASHBOARD: Json = {
    "type": "object",
    "required": ["instanceSelector", "configMapRef"],
    "additionalProperties": False,
    "properties": {
        "instanceSelector": {
            "type": "object",
            "required": ["matchLabels"],
            "additionalProperties": False,
            "properties": {
                "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}}
            },
        },
        "allowCrossNamespaceImport": {"type": "boolean"},
        "resyncPeriod": {"type": "string", "pattern": "^([0-9]+(s|m|h))+$"},
        "folder": {"type": "string"},
        "configMapRef": {
            "type": "object",
            "required": ["name", "key"],
            "additionalProperties": False,
            "properties": {"name": {"type": "string"}, "key": {"type": "string"}},
        },
    },
}


def config_maps(objects: list[Json]) -> list[Json]:
    """Return the ConfigMaps with dashboards."""
    return [
        item
        for item in objects
        if item["kind"] == "ConfigMap"
        and item["metadata"]["labels"]["app.kubernetes.io/component"] == "dashboards"
    ]


def test_grafana_accepts_the_dashboards() -> None:
    """Grafana's own schema, applied strictly, refuses nothing."""
    assert len(FILES) == len(BOARDS)
    assert grafana.problems(FILES) == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("panels", 1, "options", "colorMod"), "value", "colorMod"),
        (("panels", 1, "targets", 0, "exprs"), "up", "exprs"),
        (("templating", "list", 1, "multi"), "yes", "multi"),
        (("refreshh",), "30s", "refreshh"),
    ],
)
def test_grafana_refuses(
    path: tuple[str | int, ...], value: str, said: str, tmp_path: Path
) -> None:
    """Unknown keys and wrong types are found, in panels, queries and variables too."""
    broken = json.loads(FILES[0].read_text())
    node = broken
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    file = tmp_path / "broken.json"
    file.write_text(json.dumps(broken))
    assert said in "".join(grafana.problems([file]))


def test_config_maps_hold_the_dashboards(render: Render) -> None:
    """The sidecar finds one ConfigMap per dashboard, unchanged, legends in braces included."""
    found = config_maps(render("monitoring-values"))
    held = {name: text for item in found for name, text in item["data"].items()}
    assert len(found) == len(held) == len(BOARDS)
    for name, text in held.items():
        assert json.loads(text) == BOARDS[name]
        assert len(text) < 256 * 1024
    for item in found:
        assert item["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert item["metadata"]["annotations"] == {"grafana_folder": "NPU"}
    assert "{{node}}" in held["npu-fleet.json"]


def test_settings_apply(render: Render) -> None:
    """Label, folder, namespace and the choice of clusters are values."""
    for item in config_maps(render("everything-values")):
        assert item["metadata"]["namespace"] == "grafana"
        assert item["metadata"]["labels"]["dashboards"] == "yes"
        assert item["metadata"]["annotations"] == {
            "k8s-sidecar-target-directory": "Boards",
            "example.com/owner": "edge",
        }
        ((name, text),) = item["data"].items()
        hidden = {one["name"]: one["hide"] for one in json.loads(text)["templating"]["list"]}
        assert set(hidden.values()) == {0}
        before = {one["name"]: one["hide"] for one in BOARDS[name]["templating"]["list"]}
        assert [key for key, hide in before.items() if hide] == ["cluster"]


def test_grafana_operator(render: Render) -> None:
    """For the Grafana operator each dashboard has an object that names its ConfigMap."""
    objects = render("everything-values")
    found = [item for item in objects if item["kind"] == "GrafanaDashboard"]
    assert len(found) == len(BOARDS)
    keys = {
        (item["metadata"]["namespace"], item["metadata"]["name"], *item["data"])
        for item in config_maps(objects)
    }
    for item in found:
        jsonschema.validate(item["spec"], GRAFANA_DASHBOARD)
        reference = item["spec"]["configMapRef"]
        assert (item["metadata"]["namespace"], reference["name"], reference["key"]) in keys
        assert item["spec"]["instanceSelector"]["matchLabels"] == {"grafana": "edge"}
        assert item["spec"]["folder"] == "Boards"


def test_off_and_absent() -> None:
    """Dashboards can be turned off; values from before they existed give the defaults."""

    def found(dashboards: object) -> list[Json]:
        values = {"monitoring": {"enabled": True, "skipApiCheck": True, "dashboards": dashboards}}
        return config_maps(chart.objects(chart.render(values=values)))

    assert found({"enabled": False}) == []
    assert found(None) == found({})
    assert config_maps(chart.objects(chart.render())) == []


def test_operator_is_needed() -> None:
    """Objects for the Grafana operator are rendered only where the API server knows them."""
    apis = [f"monitoring.coreos.com/v1/{kind}" for kind in ("PodMonitor", "PrometheusRule")]
    settings = ["monitoring.enabled=true", "monitoring.dashboards.grafanaOperator.enabled=true"]
    with pytest.raises(CommandError, match=r"grafanaOperator\.enabled: this cluster has no"):
        chart.render(settings=settings, apis=apis)
    apis.append("grafana.integreatly.org/v1beta1/GrafanaDashboard")
    assert "GrafanaDashboard" in chart.render(settings=settings, apis=apis)

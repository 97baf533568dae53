"""Autoscalers of services: what KEDA and Kubernetes accept, within quotas, still without data."""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import jsonschema
import pytest
import yaml

from ci import chart, keda, prometheus_adapter
from ci.chart import CHART, Json
from ci.command import CommandError

Render = Callable[..., list[Json]]

FEATURE = "autoscaling-values"


@cache
def schema() -> Json:
    """Return KEDA's own schema."""
    return keda.schema("ScaledObject")


def scaled(objects: list[Json], kind: str = "ScaledObject") -> dict[str, Json]:
    """Return the specs of the autoscalers by name."""
    return {item["metadata"]["name"]: item["spec"] for item in objects if item["kind"] == kind}


def recording_rules() -> list[Json]:
    """Return the chart's recording rules."""
    rules: list[Json] = yaml.safe_load((CHART / "rules/recording.yaml").read_text())
    return rules


def service(**settings: object) -> Json:
    """Return values with one service, and with a quota of two NPUs for its namespace."""
    return {
        "autoscaling": {
            "skipApiCheck": True,
            "services": [{"namespace": "team-a", "name": "detector", **settings}],
        },
        "quotas": [{"namespace": "team-a", "hard": {"requests.rockchip.com/npu": 2}}],
    }


def test_objects_fit_keda(render: Render) -> None:
    """No key is misspelt or of another type; a misspelt one would be found."""
    found = scaled(render(FEATURE))
    assert set(found) == {"detector", "reader"}
    for spec in found.values():
        jsonschema.validate(spec, schema())
    with pytest.raises(jsonschema.ValidationError, match="unheardOf"):
        jsonschema.validate(found["reader"] | {"unheardOf": {}}, schema())


def test_numbers_of_triggers(render: Render) -> None:
    """Waiting requests first, then busy cores of a replica; strings, as KEDA wants them."""
    detector, reader = (scaled(render(FEATURE))[name] for name in ("detector", "reader"))
    thresholds = [one["metadata"]["threshold"] for one in detector["triggers"]]
    assert thresholds == ["4", "0.7"]
    assert [one["metadata"]["threshold"] for one in reader["triggers"]] == ["2.5", "1.5"]
    query = reader["triggers"][0]["metadata"]["query"]
    assert query == 'sum(npu_inference_queue_depth{namespace="team-b",service_name="text-reader"})'
    assert {one["metricType"] for one in reader["triggers"]} == {"AverageValue"}


def test_nothing_moves_without_data(render: Render) -> None:
    """An empty answer is an error, and errors keep the replicas that there are."""
    for spec in scaled(render(FEATURE)).values():
        assert {one["metadata"]["ignoreNullValues"] for one in spec["triggers"]} == {"false"}
        assert spec["fallback"]["behavior"] == "currentReplicasIfHigher"
        assert spec["fallback"]["replicas"] == spec["minReplicaCount"] >= 1


def test_the_quota_is_the_most(render: Render) -> None:
    """Replicas are bounded by what the namespace may hold, whole replicas only."""
    found = scaled(render(FEATURE))
    assert (found["detector"]["maxReplicaCount"], found["reader"]["maxReplicaCount"]) == (3, 4)
    for settings, most in (
        ({}, 2),
        ({"maxReplicas": 1}, 1),
        ({"resource": "rockchip.com/npu.shared"}, 10),
        ({"namespace": "team-b"}, 10),
        ({"npusPerReplica": 2}, 1),
    ):
        assert scaled(render(**service(**settings)))["detector"]["maxReplicaCount"] == most
    values = service()
    values["quotas"][0]["scopeSelector"] = {
        "matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["npu-batch"]}
        ]
    }
    assert scaled(render(**values))["detector"]["maxReplicaCount"] == 10
    values["quotas"] = [{"namespace": "team-a", "hard": {"pods": "4"}}]
    assert scaled(render(**values))["detector"]["maxReplicaCount"] == 4


def test_busy_cores_can_be_left_out(render: Render) -> None:
    """Boards that tell no load would keep a service from ever shrinking."""
    (trigger,) = scaled(render(**service(busyRatio=0)))["detector"]["triggers"]
    assert trigger["name"] == "queue"


def test_plain_autoscalers_ask_the_same(render: Render) -> None:
    """The same thresholds, bounds and pace on external metrics."""
    plain = scaled(render(FEATURE, autoscaling={"kind": "hpa"}), kind="HorizontalPodAutoscaler")
    assert set(plain) == {"detector", "reader"}
    for name, spec in scaled(render(FEATURE)).items():
        other = plain[name]
        assert other["maxReplicas"] == spec["maxReplicaCount"]
        assert other["behavior"] == spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        assert [one["external"]["target"]["averageValue"] for one in other["metrics"]] == [
            one["metadata"]["threshold"] for one in spec["triggers"]
        ]
    assert scaled(render(FEATURE, autoscaling={"kind": "hpa"})) == {}


def test_the_documented_adapter_serves_what_they_ask(render: Render) -> None:
    """Each metric of a plain autoscaler is one of the page's rules, with the labels it asks by."""
    spec = scaled(
        render(**service() | {"autoscaling": {"kind": "hpa", **service()["autoscaling"]}}),
        kind="HorizontalPodAutoscaler",
    )["detector"]
    asked = [one["external"]["metric"] for one in spec["metrics"]]
    recorded = {rule["record"]: rule["expr"] for rule in recording_rules()}
    served = {}
    for rule in prometheus_adapter.documented_rules()["external"]:
        series, _, labels = rule["seriesQuery"].rstrip("}").partition("{")
        served[rule.get("name", {}).get("as", series)] = labels
        assert (
            series == "npu_inference_queue_depth" or "namespace, service_name" in recorded[series]
        )
        assert rule["metricsQuery"] == "sum(<<.Series>>{<<.LabelMatchers>>})", "one number"
        assert rule["resources"]["overrides"] == {"namespace": {"resource": "namespace"}}
    assert {one["name"] for one in asked} == set(served)
    for one in asked:
        assert set(one["selector"]["matchLabels"]) == {"service_name"}
        assert served[one["name"]] == 'namespace!="",service_name!=""'


def test_the_documented_values_work(render: Render) -> None:
    """The page's example renders to an autoscaler within the quota of the page about quotas."""
    values: dict[str, Any] = {}
    for name in ("quotas", "autoscaling"):
        page = (CHART.parent.parent / "docs" / f"{name}.md").read_text()
        (block,) = re.findall(rf"```yaml\n# {name}.yaml\n(.*?)```", page, re.DOTALL)
        values |= yaml.safe_load(block)
    values["autoscaling"]["skipApiCheck"] = True
    spec = scaled(render(**values))["detector"]
    assert spec["maxReplicaCount"] == 2
    assert [one["metadata"]["threshold"] for one in spec["triggers"]] == ["4", "2.1"]


def test_the_walkthroughs_values_work(render: Render) -> None:
    """Both files together: three replicas, as the team has three NPUs, and the queue alone."""
    folder = CHART.parent.parent / "docs/examples/walkthrough"
    values = {"simulator": {"enabled": True}}
    for name in ("team", "autoscaling"):
        values |= yaml.safe_load((folder / f"{name}.yaml").read_text())
    values["autoscaling"]["skipApiCheck"] = True
    spec = scaled(render(**values))["detector"]
    assert spec["maxReplicaCount"] == 3
    assert [one["name"] for one in spec["triggers"]] == ["queue"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (service(minReplicas=3), "team-a/detector may have 2 replicas"),
        (service(queueDepth=0), "queueDepth"),
        (service(name="Detector"), "name"),
        (service(serviceName='x"} or vector(9) #'), "serviceName"),
        (service(cores=3), "cores"),
        (service() | {"autoscaling": {"services": service()["autoscaling"]["services"]}}, "KEDA"),
        (
            service() | {"autoscaling": {"kind": "hpa",
             "services": service()["autoscaling"]["services"] * 2}},
            "detector is there twice",
        ),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(values: Json, message: str) -> None:
    """The message names what is wrong."""
    with pytest.raises(CommandError, match=message):
        chart.render(values=values)

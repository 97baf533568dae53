"""Recording rules and alerts, judged by promtool as the chart renders them."""

import math
import re
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import yaml

from ci import chart, tools
from ci.chart import CHART, Json
from ci.command import CommandError
from exporter.catalogue import CATALOGUE
from plugin.metrics import Metrics as PluginMetrics
from thermal.metrics import Metrics as GuardMetrics

Render = Callable[..., list[Json]]

ROOT = CHART.parent.parent
CASES = Path(__file__).parent / "rules"
RUNBOOKS = ROOT / "docs" / "runbooks"
ALERTS: list[Json] = yaml.safe_load((CHART / "rules" / "alerts.yaml").read_text())
RECORDS: list[Json] = yaml.safe_load((CHART / "rules" / "recording.yaml").read_text())
NAMES = [alert["alert"] for alert in ALERTS]
MONITORED: Json = {"monitoring": {"enabled": True, "skipApiCheck": True}}
GROUPS = ["npu.recording", "npu.alerts"]
#: Metrics of others: Prometheus itself, and kube-state-metrics as it documents them.
FOREIGN = {
    "up",
    "kube_pod_container_resource_requests",
    "kube_pod_status_phase",
    "kube_resourcequota",
    "kube_horizontalpodautoscaler_status_desired_replicas",
    "kube_horizontalpodautoscaler_status_current_replicas",
}
#: Metrics of inference services, as docs/monitoring.md names them.
INFERENCE = {
    "npu_inference_requests_total",
    "npu_inference_queue_depth",
    "npu_inference_in_flight",
    "npu_inference_duration_seconds_sum",
    "npu_inference_queue_wait_seconds_bucket",
}


def monitored(**rules: object) -> list[Json]:
    """Return what is rendered with these settings of the rules."""
    values = {"monitoring": MONITORED["monitoring"] | {"rules": rules}}
    return chart.objects(chart.render(values=values))


def groups(objects: list[Json]) -> dict[str, list[Json]]:
    """Return the rules by group; none where no PrometheusRule is rendered."""
    found = [item["spec"]["groups"] for item in objects if item["kind"] == "PrometheusRule"]
    assert len(found) <= 1
    return {group["name"]: group["rules"] for group in found[0]} if found else {}


def alerts(objects: list[Json]) -> dict[str, Json]:
    """Return the rendered alerts by name."""
    return {rule["alert"]: rule for rule in groups(objects).get("npu.alerts", [])}


@cache
def default() -> list[Json]:
    """Return the render with monitoring and nothing else set."""
    return monitored()


def promtool(*arguments: str | Path) -> str:
    """Return what promtool says, with its exit code where that is not 0."""
    done = subprocess.run(
        [tools.promtool(), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return "" if done.returncode == 0 else f"exit {done.returncode}: {done.stdout}{done.stderr}"


def rules_file(objects: list[Json], directory: Path) -> Path:
    """Write the spec of the PrometheusRule, which is what Prometheus gets to read."""
    (item,) = [item for item in objects if item["kind"] == "PrometheusRule"]
    file = directory / "rules.yaml"
    file.write_text(yaml.safe_dump(item["spec"], allow_unicode=True))
    return file


def series(text: Json) -> list[Json]:
    """Return input series as promtool takes them."""
    return [{"series": name, "values": str(values)} for name, values in text.items()]


def cases(alert: str) -> list[Json]:
    """Return the cases of an alert."""
    loaded: list[Json] = yaml.safe_load((CASES / f"{alert}.yaml").read_text())
    return loaded


def expected(rule: Json, instance: Json) -> Json:
    """Return a firing alert as promtool expects it: wholly, with what the rule itself adds."""
    return {
        "exp_labels": rule["labels"] | instance.get("labels", {}),
        "exp_annotations": rule["annotations"] | {"description": instance["description"]},
    }


def rules_for(alert: str) -> Json:
    """Return an alert as rendered and the recorded series that it stands on, and no others."""
    rendered = groups(default())
    wanted = [alerts(default())[alert]]
    for rule in reversed(rendered["npu.recording"]):
        if any(rule["record"] in above["expr"] for above in wanted):
            wanted.insert(0, rule)
    return {
        "groups": [
            {"name": "npu.recording", "rules": wanted[:-1]},
            {"name": "npu.alerts", "rules": wanted[-1:]},
        ]
    }


def unit_test(alert: str) -> Json:
    """Return the cases of an alert as a test file of promtool."""
    rule = alerts(default())[alert]
    return {
        "rule_files": [f"{alert}.rules.yaml"],
        "evaluation_interval": "30s",
        "group_eval_order": GROUPS,
        "tests": [
            {
                "name": case["name"],
                "interval": "30s",
                "input_series": series(case["input"]),
                "alert_rule_test": [
                    {
                        "eval_time": case["at"],
                        "alertname": alert,
                        "exp_alerts": [expected(rule, one) for one in case.get("alerts", [])],
                    }
                ],
            }
            for case in cases(alert)
        ],
    }


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what promtool says about each alert: one run for all, as its start takes longest."""
    directory = tmp_path_factory.mktemp("rules")
    for alert in NAMES:
        for kind, content in (("rules", rules_for(alert)), ("test", unit_test(alert))):
            text = yaml.safe_dump(content, allow_unicode=True)
            (directory / f"{alert}.{kind}.yaml").write_text(text)
    done = subprocess.run(
        [tools.promtool(), "test", "rules", *sorted(directory.glob("*.test.yaml"))],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    parts = re.split(r"^Unit Testing:\s+\S*/(\w+)\.test\.yaml$", done.stdout, flags=re.MULTILINE)
    said = dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))
    # Reasons for failures go to the other stream, which names no file.
    return {name: text if text == "SUCCESS" else text + done.stderr for name, text in said.items()}


@pytest.mark.parametrize("alert", NAMES)
def test_alert(alert: str, verdicts: dict[str, str]) -> None:
    """The alert fires when it should, with the text it should, and else it does not."""
    assert verdicts[alert] == "SUCCESS"


@pytest.mark.parametrize("alert", NAMES)
def test_alert_is_tried_both_ways(alert: str) -> None:
    """Every alert has a case in which it fires and one in which it does not."""
    fires = {bool(case.get("alerts")) for case in cases(alert)}
    assert fires == {True, False}


def test_no_case_without_alert() -> None:
    """Every file of cases belongs to an alert."""
    assert {file.stem for file in CASES.glob("*.yaml")} == set(NAMES)


def test_recording_rules(tmp_path: Path) -> None:
    """The recorded series have the values that their meaning promises."""
    rules_file(default(), tmp_path)
    loaded: Json = yaml.safe_load((CASES / "recording" / "records.yaml").read_text())
    file = tmp_path / "test.yaml"
    content = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "30s",
        "group_eval_order": GROUPS,
        "tests": [
            {
                "interval": "30s",
                "input_series": series(loaded["input"]),
                "promql_expr_test": [
                    {
                        "expr": record,
                        "eval_time": loaded["at"],
                        "exp_samples": [
                            {"labels": f"{record}{labels}", "value": value}
                            for labels, value in samples.items()
                        ],
                    }
                    for record, samples in loaded["expected"].items()
                ],
            }
        ],
    }
    file.write_text(yaml.safe_dump(content, allow_unicode=True))
    assert promtool("test", "rules", file) == ""
    assert set(loaded["expected"]) == {record["record"] for record in RECORDS}


@pytest.mark.parametrize("feature", ["monitoring-values", "everything-values"])
def test_syntax(render: Render, feature: str, tmp_path: Path) -> None:
    """Prometheus reads the rules, and no word of ours in capitals is left in them."""
    objects = render(feature)
    assert promtool("check", "rules", rules_file(objects, tmp_path)) == ""
    words = re.compile(r"THRESHOLD|FALLBACK_|MANY_NODES|NPU_[A-Z]|<nil>")
    for group in groups(objects).values():
        for rule in group:
            assert not words.search(str(rule)), rule


def test_all_are_rendered() -> None:
    """With defaults every rule of the chart is rendered, each once and in order."""
    rendered = groups(default())
    assert [rule["record"] for rule in rendered["npu.recording"]] == [r["record"] for r in RECORDS]
    assert [rule["alert"] for rule in rendered["npu.alerts"]] == NAMES
    assert len(set(NAMES)) == len(NAMES)


def test_defaults_are_said_twice_alike() -> None:
    """The values show the defaults that apply where an upgrade keeps older values."""
    shown = chart.default_values()["monitoring"]["rules"]
    for rule in ALERTS:
        own = {"enabled": True, "severity": rule["severity"], "for": rule["for"]}
        if "threshold" in rule:
            own["threshold"] = rule["threshold"]
        assert shown["alerts"][rule["alert"]] == own
        assert ("threshold" in rule) == ("THRESHOLD" in rule["expr"])
    assert list(shown["alerts"]) == NAMES


def test_absent_settings_are_the_defaults() -> None:
    """`helm upgrade --reuse-values` from a release without these settings changes nothing."""
    nothing = chart.objects(
        chart.render(values={"monitoring": MONITORED["monitoring"] | {"rules": None}})
    )
    assert groups(nothing) == groups(default())


@pytest.mark.parametrize("bit", range(math.ceil(math.log2(len(NAMES) + 1))))
def test_switches(bit: int) -> None:
    """Each switch removes its alert and no other: numbered, each half by a digit is turned off."""
    off = {name for number, name in enumerate(NAMES, 1) if number >> bit & 1}
    assert off
    rendered = alerts(monitored(alerts={name: {"enabled": False} for name in off}))
    assert set(rendered) == set(NAMES) - off


def test_all_switched_off() -> None:
    """With every alert off only recording rules are left; with all rules off nothing is."""
    off = monitored(alerts={name: {"enabled": False} for name in NAMES})
    assert list(groups(off)) == ["npu.recording"]
    assert groups(monitored(enabled=False)) == {}
    assert groups(chart.objects(chart.render())) == {}


def test_overrides() -> None:
    """Severity, delay and threshold of each alert can be set."""
    own: dict[str, Json] = {
        rule["alert"]: {
            "severity": "info" if rule["severity"] != "info" else "warning",
            "for": f"{number}m",
        }
        | ({"threshold": number + 0.25} if "threshold" in rule else {})
        for number, rule in enumerate(ALERTS, 1000)
    }
    rendered = alerts(monitored(alerts=own, alertLabels={"team": "edge", "severity": "x"}))
    for name, settings in own.items():
        rule = rendered[name]
        assert rule["labels"] == {"severity": settings["severity"], "team": "edge"}
        assert rule["for"] == settings["for"]
        if "threshold" in settings:
            assert f"{settings['threshold']}" in rule["expr"], name


def test_settings_apply(render: Render) -> None:
    """What is set for all rules shows in them."""
    rules = groups(render("everything-values"))
    text = str(rules)
    assert "+ 90)" in text
    assert "> bool 0.5" in text
    own = ("npu", "npu_mainline", "npu_mainline_shared", "npu_shared", "small_npu")
    assert "|".join(f"example_com_{name}" for name in (*own, "small_npu_shared")) in text
    assert "requests.example[.]com/npu|" in text or "requests[.]example[.]com/npu|" in text
    for rule in rules["npu.alerts"]:
        address = f"https://runbooks.example.com/npu/{rule['alert']}.md"
        assert rule["annotations"]["runbook_url"] == address


@pytest.mark.parametrize("component", ["plugin", "exporter", "guard"])
def test_only_what_is_installed(component: str, tmp_path: Path) -> None:
    """A component that is off raises no alert, and what is left is complete."""
    off = {component: {"enabled": False}}
    if component == "exporter":
        off["guard"] = {"enabled": False}
    objects = chart.objects(chart.render(values=MONITORED | off))
    rendered = alerts(objects)
    assert set(rendered) == {r["alert"] for r in ALERTS if not off.keys() & set(r["needs"])}
    assert not any(f"npu-platform-{component}" in str(rule) for rule in rendered.values()) or (
        component != "exporter"
    )
    assert promtool("check", "rules", rules_file(objects, tmp_path)) == ""
    recorded = {rule["record"] for rule in groups(objects).get("npu.recording", [])}
    assert used_records(objects) <= recorded


def used(objects: list[Json]) -> set[str]:
    """Return the names of series that rules read; recorded ones have colons."""
    names: set[str] = set()
    for rules in groups(objects).values():
        for rule in rules:
            bare = re.sub(r'"[^"]*"', "", rule["expr"])
            bare = re.sub(r"\b(by|on|group_left|group_right)\s*\([^)]*\)", "", bare)
            bare = re.sub(r"\{[^}]*\}", "", bare)
            names |= set(re.findall(r"\b(?:[a-z_]*:)?(?:npu|kube|process)_\w+(?::\w+)?", bare))
    return names


def used_records(objects: list[Json]) -> set[str]:
    """Return the recorded series that rules read."""
    return {name for name in used(objects) if ":" in name}


def plugin_metrics() -> set[str]:
    """Return the names of the plugin's samples, from the code that makes them."""
    metrics = PluginMetrics()
    metrics.prepare("rockchip.com/npu")
    names = {sample.name for family in metrics.registry.collect() for sample in family.samples}
    made = re.compile(r"\b(gauge|counter)\(\s*\"(\w+)\"")
    for file in (ROOT / "plugin").rglob("*.py"):
        for kind, name in made.findall(file.read_text()):
            names.add(f"npu_device_plugin_{name}" + ("_total" if kind == "counter" else ""))
    return names


def guard_metrics() -> set[str]:
    """Return the names of the guard's samples, from the code that makes them."""
    metrics = GuardMetrics(mode="enforce")
    metrics.judged({}, evaluated_at=1.0)
    metrics.self_tested("enforced")
    counter = {"counter": "_total", "Counter": "_total"}
    names = {family.name + counter.get(family.type, "") for family in metrics.collect()}
    made = re.compile(r"(Gauge|Counter)MetricFamily\(\s*f\"\{_PREFIX\}_(\w+)\"")
    for kind, name in made.findall((ROOT / "thermal" / "dra" / "exposition.py").read_text()):
        names.add(f"npu_thermal_guard_{name}{counter.get(kind, '')}")
    return names


def test_metrics_exist() -> None:
    """No rule reads a series that no program of ours, or of the known others, exports."""
    exported = set(CATALOGUE) | plugin_metrics() | guard_metrics() | FOREIGN | INFERENCE
    raw = {name for name in used(default()) if ":" not in name}
    assert raw - exported == set()
    assert len(raw) > 30
    for case in NAMES:
        for one in cases(case):
            names = {key.partition("{")[0] for key in one["input"]}
            assert names - exported == set(), case


def test_records_are_used_or_explained() -> None:
    """Every record has a meaning, and alerts read only what is recorded."""
    recorded = {record["record"] for record in RECORDS}
    assert used_records(default()) <= recorded
    for record in RECORDS:
        assert record["meaning"].endswith(".")
        level, metric, operation = record["record"].split(":")
        assert level
        assert metric.startswith("npu_")
        assert operation


@pytest.mark.parametrize("alert", NAMES)
def test_runbook(alert: str) -> None:
    """Every alert has a page with symptom, meaning, commands and remedy."""
    text = (RUNBOOKS / f"{alert}.md").read_text()
    assert text.startswith(f"# {alert}\n")
    headings = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    assert headings == ["Symptom", "Meaning", "Look", "Remedy"]
    assert "```sh\n" in text.partition("## Look")[2].partition("## Remedy")[0]


def test_no_runbook_without_alert() -> None:
    """Every runbook belongs to an alert."""
    assert {file.stem for file in RUNBOOKS.glob("*.md")} == set(NAMES)


def test_annotations() -> None:
    """Summaries are constant sentences; descriptions name what they are about."""
    for name, rule in alerts(default()).items():
        notes = rule["annotations"]
        assert notes["summary"].endswith("."), name
        assert "{{" not in notes["summary"], name
        assert notes["description"].endswith("."), name
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}


def test_rules_need_their_api() -> None:
    """Rules are rendered where the API server knows them; the message says how to do without."""
    apis = ["monitoring.coreos.com/v1/PodMonitor"]
    with pytest.raises(CommandError, match=r"monitoring\.rules\.enabled"):
        chart.render(settings=["monitoring.enabled=true"], apis=apis)
    without = ["monitoring.enabled=true", "monitoring.rules.enabled=false"]
    assert groups(chart.objects(chart.render(settings=without, apis=apis))) == {}
    apis.append("monitoring.coreos.com/v1/PrometheusRule")
    assert groups(chart.objects(chart.render(settings=["monitoring.enabled=true"], apis=apis)))


def test_dashboards_need_no_operator() -> None:
    """Without monitors and rules a cluster without the Prometheus operator has the dashboards."""
    settings = [
        "monitoring.enabled=true",
        "monitoring.podMonitors.enabled=false",
        "monitoring.rules.enabled=false",
    ]
    found = chart.objects(chart.render(settings=settings, apis=[]))
    assert {item["kind"] for item in found}.isdisjoint({"PodMonitor", "PrometheusRule"})
    maps = [item for item in found if "grafana_dashboard" in item["metadata"].get("labels", {})]
    assert {item["kind"] for item in maps} == {"ConfigMap"}
    with pytest.raises(CommandError, match=r"podMonitors\.enabled=false"):
        chart.render(settings=["monitoring.enabled=true"], apis=[])
    with pytest.raises(CommandError, match=r"podMonitors\.enabled=false"):
        chart.render(
            settings=["monitoring.enabled=true", "monitoring.rules.enabled=false"], apis=[]
        )


def test_rules_are_found_like_monitors(render: Render) -> None:
    """The labels that Prometheus selects by are on rules as on monitors."""
    (item,) = [item for item in render("monitoring-values") if item["kind"] == "PrometheusRule"]
    assert item["metadata"]["labels"]["release"] == "prometheus"

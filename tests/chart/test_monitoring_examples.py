"""Examples for a Prometheus without the operator and for Alertmanager do what the chart does."""

import re
import subprocess
from collections.abc import Callable

import yaml

from ci import alerts_reference, tools
from ci.chart import CHART, Json

Render = Callable[..., list[Json]]

EXAMPLES = CHART.parent.parent / "docs" / "examples"
NAMES = {rule["alert"] for rule in alerts_reference.rules("alerts")}


def example(name: str) -> Json:
    """Return an example."""
    loaded: Json = yaml.safe_load((EXAMPLES / name).read_text())
    return loaded


def test_scrape_config_is_like_the_monitors(render: Render) -> None:
    """Jobs, kept Pods and labels are those of the PodMonitors."""
    monitors = [item for item in render("monitoring-values") if item["kind"] == "PodMonitor"]
    jobs = {job["job_name"]: job for job in example("scrape-config.yaml")["scrape_configs"]}
    assert len(jobs) == len(monitors) == 3
    for monitor in monitors:
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        relabel = {rule.get("targetLabel"): rule for rule in endpoint["relabelings"]}
        job = jobs[relabel["job"]["replacement"]]
        assert job["honor_labels"] is endpoint["honorLabels"]
        assert job["scrape_interval"] == endpoint["interval"]
        assert job["scrape_timeout"] == endpoint["scrapeTimeout"]
        assert endpoint["port"] == "http"
        component, port, *added = job["relabel_configs"]
        selector = monitor["spec"]["selector"]["matchLabels"]
        assert component["regex"] == selector["app.kubernetes.io/component"]
        assert (port["action"], port["regex"]) == ("keep", "http")
        labels = {rule["target_label"] for rule in added}
        assert ("node" in labels) == ("node" in relabel)
        dropped = any(rule.get("action") == "labeldrop" for rule in endpoint["relabelings"])
        assert ({"namespace", "pod"} <= labels) == (not dropped)


def test_alertmanager_takes_its_example() -> None:
    """Alertmanager's own checker accepts the file."""
    done = subprocess.run(
        [tools.amtool(), "check-config", EXAMPLES / "alertmanager.yaml"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_inhibitions_name_alerts() -> None:
    """Every alert that an inhibition names exists, and none holds itself back."""
    for rule in example("alertmanager.yaml")["inhibit_rules"]:
        named = []
        for side in ("source_matchers", "target_matchers"):
            (matcher,) = rule[side]
            found = re.fullmatch(r'alertname=~?"(.*)"', matcher)
            assert found is not None
            matching = {name for name in NAMES if re.fullmatch(found[1], name)}
            assert len(matching) == found[1].count("|") + 1, matcher
            named.append(matching)
        assert not named[0] & named[1]

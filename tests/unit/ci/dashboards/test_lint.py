"""Every rule of the dashboards' linter can fail, and the dashboards pass them all."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from ci.chart import Json
from ci.dashboards import catalogue, lint, promql

BOARDS = catalogue.dashboards()
Break = Callable[[Json], None]


def panel(dashboard: Json, kind: str = "timeseries") -> Json:
    """Return the first panel of a kind."""
    return next(one for one in promql.panels(dashboard) if one["type"] == kind)


def expr(text: str) -> Break:
    """Return a change of the first query."""

    def change(dashboard: Json) -> None:
        panel(dashboard)["targets"][0]["expr"] = text

    return change


def template(variable: str, **values: object) -> Break:
    """Return a change of a variable."""

    def change(dashboard: Json) -> None:
        found = [one for one in dashboard["templating"]["list"] if one["name"] == variable]
        found[0].update(values)

    return change


def put(*path: str | int, value: object, kind: str = "timeseries") -> Break:
    """Return a change somewhere in the first panel of a kind."""

    def change(dashboard: Json) -> None:
        node: Any = panel(dashboard, kind)
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = value

    return change


def top(**values: object) -> Break:
    """Return a change of the dashboard itself."""
    return lambda dashboard: dashboard.update(values)


RATE = "rate(npu_core_busy_seconds_total{{{}}}[{}])"
BOTH = 'cluster=~"$cluster", job=~"$job"'
BREAKS: list[tuple[str, Break]] = [
    ("template-datasource", template("datasource", query="loki")),
    ("template-datasource", top(__inputs=[])),
    ("template-job", template("job", multi=False)),
    ("template-job", template("job", name="jobs")),
    ("template-label-promql", template("job", query={"query": "label_values(a{, job)"})),
    ("template-label-promql", template("job", query={"query": "query_result(a)"})),
    ("template-label-promql", template("job", query={"query": "label_values(a, instance)"})),
    ("template-on-time-change-reload", template("job", refresh=1)),
    ("panel-datasource", put("datasource", value={"type": "prometheus", "uid": "mine"})),
    ("panel-datasource", put("targets", 0, "datasource", value="Prometheus")),
    ("panel-datasource", template("job", datasource=None)),
    ("panel-title-description", put("description", value="no full stop")),
    ("panel-title-description", put("title", value="")),
    ("panel-units", put("fieldConfig", "defaults", "unit", value="")),
    ("panel-units", put("fieldConfig", "defaults", value={"unit": "percentunit"})),
    ("panel-no-targets", put("targets", value=[])),
    ("panel-no-value", put("fieldConfig", "defaults", "noValue", value="")),
    ("panel-gaps", put("fieldConfig", "defaults", "custom", "spanNulls", value=True)),
    ("target-logql", put("targets", 0, "datasource", value={"type": "loki"})),
    ("target-promql", expr("sum by (node (up)")),
    ("target-promql", expr(f"up{{{BOTH}, node='$unknown'}}")),
    ("target-rate-interval", expr(RATE.format(BOTH, "5m"))),
    ("target-rate-interval", expr(f"increase(npu_core_busy_seconds_total{{{BOTH}}}[1h])")),
    ("target-job", expr('npu_info{cluster=~"$cluster"}')),
    ("target-job", expr('npu_info{cluster=~"$cluster", job="npu-platform-exporter"}')),
    ("target-cluster", expr('npu_info{job=~"$job"}')),
    ("target-cluster", expr('node:npu_heat_state:level{node="a"}')),
    ("target-counter-agg", expr(f"sum(npu_core_busy_seconds_total{{{BOTH}}})")),
    ("target-counter-agg", expr(f"rate(npu_temperature_celsius{{{BOTH}}}[$__rate_interval])")),
    ("uneditable-dashboard", top(editable=True)),
    ("identity", top(uid="Fleet")),
    ("identity", top(id=7)),
    ("identity", top(version=3)),
    ("identity", top(links=[])),
    (
        "colours",
        put("fieldConfig", "defaults", "thresholds", value={"steps": [{"color": "red"}]}),
    ),
    ("table-columns", put("transformations", value=[], kind="table")),
]


@pytest.mark.parametrize("name", BOARDS)
def test_dashboards_are_clean(name: str) -> None:
    """No rule finds anything in the dashboards that are not excused."""
    assert lint.problems(BOARDS[name]) == []


@pytest.mark.parametrize(("rule", "change"), BREAKS)
def test_rule_can_fail(rule: str, change: Break) -> None:
    """A dashboard with one fault is found out, by the rule that is about it."""
    dashboard = copy.deepcopy(BOARDS["npu-fleet.json"])
    change(dashboard)
    assert rule in {problem.partition(":")[0] for problem in lint.problems(dashboard)}


@pytest.mark.parametrize("rule", ["template-instance", "target-instance"])
def test_exempted_rule_can_fail(rule: str) -> None:
    """What is excused is a fault by the rule."""
    found = lint.problems(BOARDS["npu-fleet.json"], exemptions=())
    assert rule in {problem.partition(":")[0] for problem in found}


def test_every_rule_is_tried() -> None:
    """No rule is without a case in which it finds something."""
    exempted = {one.rule for one in lint.EXEMPTIONS}
    assert {rule for rule, _ in BREAKS} | exempted == set(lint.RULES)


def test_needless_exemptions_are_found() -> None:
    """An exemption that excuses nothing is said; every one has a reason."""
    needless = lint.Exemption(rule="identity", dashboard=".*", where=".*", reason="none")
    found = lint.problems(BOARDS["npu-fleet.json"], exemptions=[*lint.EXEMPTIONS, needless])
    assert found == ["identity: an exemption is not needed"]
    assert all(one.reason for one in lint.EXEMPTIONS)


def test_selectors() -> None:
    """A query is seen with the ranges and functions around each series."""
    (one, other) = promql.selectors(
        'sum(increase(a_total{job=~"$job"}[$__range])) / max_over_time(x:b:c{n!="$node"}[5m:1m])'
    )
    assert (one.name, one.range_seconds, one.functions) == ("a_total", 3601.0, ("increase",))
    assert one.matchers == {"job": ("x",)}
    assert (other.name, other.functions) == ("x:b:c", ("max_over_time",))


def test_variables() -> None:
    """Variables are told from the groups of a regular expression."""
    text = 'label_replace(a{b=~"$b"}, "c", "$1", "d", "(.*)") > ${e:raw}'
    assert promql.variables(text) == {"b", "e"}
    assert promql.replaced(text, {"b": "x", "e": "1"}).endswith('"$1", "d", "(.*)") > 1')
    with pytest.raises(KeyError):
        promql.replaced(text, {"b": "x"})

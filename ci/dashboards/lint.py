"""Lints dashboards by the rules of Grafana's dashboard-linter, and some of our own.

A rule yields (where, what is wrong) pairs. Exemptions name a rule, a place and a reason, and one
that exempts nothing is a problem itself.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ci.chart import Json
from ci.dashboards import promql
from ci.dashboards.palette import COLOURS
from ci.dashboards.query import DATASOURCE

Found = Iterator[tuple[str, str]]
Rule = Callable[[Json], Found]

#: Metrics of other projects: their job is the user's own.
FOREIGN: Final = ("kube_", "npu_inference_", "npu_model_", "ALERTS")
_INCREASING = re.compile(r"_(total|sum|count|bucket)$")
_COUNTER_FUNCTIONS = frozenset({"rate", "irate", "increase", "resets", "changes"})
RULES: Final[dict[str, Rule]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemption:
    """A place where a rule need not hold: dashboard and place are regular expressions."""

    rule: str
    dashboard: str
    where: str
    reason: str


#: Every exemption with its reason.
EXEMPTIONS: Final = (
    Exemption(
        rule="template-instance",
        dashboard=".*",
        where=".*",
        reason="boards are chosen by node; an instance is the address of a Pod that comes and goes",
    ),
    Exemption(
        rule="target-instance",
        dashboard=".*",
        where=".*",
        reason="as above",
    ),
)


def _rule(name: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        RULES[name] = rule
        return rule

    return register


def problems(dashboard: Json, exemptions: Iterable[Exemption] = EXEMPTIONS) -> list[str]:
    """Return what is wrong, a line each, and exemptions of this dashboard that exempt nothing."""
    found = []
    open_ones = [
        one for one in exemptions if re.fullmatch(one.dashboard, str(dashboard.get("uid")))
    ]
    used = set()
    for name, rule in RULES.items():
        for where, what in rule(dashboard):
            excused = [
                one for one in open_ones if one.rule == name and re.fullmatch(one.where, where)
            ]
            used.update(excused)
            if not excused:
                found.append(f"{name}: {where}: {what}")
    found += [f"{one.rule}: an exemption is not needed" for one in open_ones if one not in used]
    return found


def _template(dashboard: Json) -> Mapping[str, Json]:
    return {one["name"]: one for one in dashboard["templating"]["list"]}


@_rule("template-datasource")
def _template_datasource(dashboard: Json) -> Found:
    """The first variable chooses the data source, and is called that."""
    found = _template(dashboard).get("datasource", {})
    if (found.get("type"), found.get("query"), found.get("label")) != (
        "datasource",
        "prometheus",
        "Data source",
    ):
        yield "datasource", 'there must be a variable "Data source" of type datasource'
    for key in ("__inputs", "__requires"):
        if key in dashboard:
            yield key, "provisioning does not fill it in"


@_rule("template-job")
def _template_job(dashboard: Json) -> Found:
    """A variable chooses the job, several at once."""
    yield from _template_multi(dashboard, "job")


@_rule("template-instance")
def _template_instance(dashboard: Json) -> Found:
    """A variable chooses the instance, several at once."""
    yield from _template_multi(dashboard, "instance")


def _template_multi(dashboard: Json, name: str) -> Found:
    found = _template(dashboard).get(name)
    if found is None:
        yield name, "there is no such variable"
    elif not (found.get("multi") and found.get("includeAll") and found.get("allValue")):
        yield name, "it must take several values and all"


@_rule("template-label-promql")
def _template_label_promql(dashboard: Json) -> Found:
    """Queries of variables are ``label_values(selector, label)`` with a selector that parses."""
    for name, one in _template(dashboard).items():
        if one["type"] != "query":
            continue
        text = one["query"]["query"]
        call = re.fullmatch(r"label_values\((.*), (\w+)\)", text, flags=re.DOTALL)
        if call is None:
            yield name, f"{text} is no label_values(selector, label)"
            continue
        if call[2] != name:
            yield name, f"it has the values of the label {call[2]}"
        try:
            promql.selectors(call[1])
        except ValueError as error:
            yield name, str(error)


@_rule("template-on-time-change-reload")
def _template_reload(dashboard: Json) -> Found:
    """Variables follow the time range, and their values are sorted."""
    for name, one in _template(dashboard).items():
        if one["type"] == "query" and (one.get("refresh"), one.get("sort")) != (2, 1):
            yield name, "refresh must be 2 (on time range change) and sort 1 (alphabetical)"


@_rule("panel-datasource")
def _panel_datasource(dashboard: Json) -> Found:
    """Panels, targets and variables read from the chosen data source."""
    for panel in promql.panels(dashboard):
        if panel["type"] != "text" and panel.get("datasource") != DATASOURCE:
            yield panel["title"], "its data source must be the variable"
    for title, _, target in promql.targets(dashboard):
        if target.get("datasource") != DATASOURCE:
            yield title, f"the data source of {target['refId']} must be the variable"
    for name, one in _template(dashboard).items():
        if one["type"] == "query" and one.get("datasource") != DATASOURCE:
            yield name, "its data source must be the variable"


@_rule("panel-title-description")
def _panel_title(dashboard: Json) -> Found:
    """A panel says what it is, and in a sentence or more what to make of it."""
    seen = set()
    for panel in promql.panels(dashboard):
        title = panel.get("title", "")
        if not title or title in seen:
            yield title or f"panel {panel['id']}", "a title is needed that no other panel has"
        seen.add(title)
        if panel["type"] != "text" and not re.search(r"\.$", panel.get("description", "")):
            yield title, "a description is needed that ends with a full stop"


@_rule("panel-units")
def _panel_units(dashboard: Json) -> Found:
    """Numbers have a unit; ratios have a lowest value."""
    for panel in promql.panels(dashboard):
        defaults = panel.get("fieldConfig", {}).get("defaults", {})
        if panel["type"] == "text":
            continue
        if not defaults.get("unit"):
            yield panel["title"], "a unit is needed (none, where there is none)"
        if defaults.get("unit") == "percentunit" and "min" not in defaults:
            yield panel["title"], "a ratio needs a lowest value"


@_rule("panel-no-targets")
def _panel_no_targets(dashboard: Json) -> Found:
    """A panel asks something."""
    for panel in promql.panels(dashboard):
        if panel["type"] != "text" and not panel.get("targets"):
            yield panel["title"], "it has no query"


@_rule("panel-no-value")
def _panel_no_value(dashboard: Json) -> Found:
    """A panel without data says why."""
    for panel in promql.panels(dashboard):
        if panel["type"] != "text" and not panel["fieldConfig"]["defaults"].get("noValue"):
            yield panel["title"], "a text for no data is needed"


@_rule("panel-gaps")
def _panel_gaps(dashboard: Json) -> Found:
    """Gaps are not bridged: no data is a fact."""
    for panel in promql.panels(dashboard):
        custom = panel.get("fieldConfig", {}).get("defaults", {}).get("custom", {})
        if (
            panel["type"] in {"timeseries", "state-timeline"}
            and custom.get("spanNulls") is not False
        ):
            yield panel["title"], "spanNulls must be false"


@_rule("target-logql")
def _target_logql(dashboard: Json) -> Found:
    """No query is for another data source than Prometheus; that covers LogQL in all its forms."""
    for title, _, target in promql.targets(dashboard):
        source = target.get("datasource")
        if not isinstance(source, dict) or source.get("type") != "prometheus":
            yield title, f"{target['refId']} is not for Prometheus"


@_rule("target-promql")
def _target_promql(dashboard: Json) -> Found:
    """Queries are PromQL, with variables that the dashboard has."""
    known = _template(dashboard).keys() | promql.PLACEHOLDERS.keys()
    for title, _, target in promql.targets(dashboard):
        for name in sorted(promql.variables(target["expr"]) - known):
            yield title, f"{target['refId']} reads an unknown variable {name}"
        try:
            promql.selectors(target["expr"])
        except ValueError as error:
            yield title, f"{target['refId']}: {error}"


def _read(dashboard: Json) -> Iterator[tuple[str, Json, promql.Selector]]:
    for title, _, target in promql.targets(dashboard):
        try:
            found = promql.selectors(target["expr"])
        except ValueError:
            continue
        for one in found:
            yield title, target, one


@_rule("target-rate-interval")
def _target_rate_interval(dashboard: Json) -> Found:
    """Rates follow Grafana's interval; an increase may be over the whole range."""
    interval, whole = (float(promql.PLACEHOLDERS[name][:-1]) for name in
                       ("__rate_interval", "__range"))  # fmt: skip
    for title, target, one in _read(dashboard):
        inner = next(iter(one.functions), "")
        wanted = {interval, whole} if inner == "increase" else {interval}
        if inner in {"rate", "irate", "increase"} and one.range_seconds not in wanted:
            yield title, f"{target['refId']}: {inner} must be over $__rate_interval"


@_rule("target-job")
def _target_job(dashboard: Json) -> Found:
    """Scraped series of ours are those of the chosen jobs. Recorded ones have no job."""
    for title, target, one in _read(dashboard):
        if ":" in one.name or one.name.startswith(FOREIGN):
            continue
        if "$job" not in target["expr"] or "x" not in one.matchers.get("job", ()):
            yield title, f'{target["refId"]}: {one.name} needs job=~"$job"'


@_rule("target-cluster")
def _target_cluster(dashboard: Json) -> Found:
    """Every series is one of the chosen clusters."""
    for title, target, one in _read(dashboard):
        if "x" not in one.matchers.get("cluster", ()):
            yield title, f'{target["refId"]}: {one.name} needs cluster=~"$cluster"'


@_rule("target-instance")
def _target_instance(dashboard: Json) -> Found:
    """Scraped series are those of the chosen instances."""
    for title, target, one in _read(dashboard):
        if ":" not in one.name and "instance" not in one.matchers:
            yield title, f'{target["refId"]}: {one.name} needs instance=~"$instance"'


@_rule("target-counter-agg")
def _target_counter(dashboard: Json) -> Found:
    """A counter is read as a rate or an increase, and nothing else as one."""
    for title, target, one in _read(dashboard):
        counter = ":" not in one.name and _INCREASING.search(one.name) is not None
        inner = next(iter(one.functions), "")
        if counter and inner not in _COUNTER_FUNCTIONS:
            yield title, f"{target['refId']}: {one.name} is a counter: take its rate"
        if not counter and inner in {"rate", "irate", "increase"}:
            yield title, f"{target['refId']}: {one.name} is no counter"


@_rule("uneditable-dashboard")
def _uneditable(dashboard: Json) -> Found:
    """The dashboard is provisioned: changes belong into its source."""
    if dashboard.get("editable") is not False:
        yield "dashboard", "editable must be false"


@_rule("identity")
def _identity(dashboard: Json) -> Found:
    """It can be linked to: a readable uid, no number of one Grafana, no version."""
    if not re.fullmatch(r"npu-[a-z-]{1,36}", str(dashboard.get("uid"))):
        yield "uid", "it must be npu-… and at most 40 characters"
    if dashboard.get("id", 0) is not None or "version" in dashboard:
        yield "id", "id must be null, and there must be no version"
    links = dashboard.get("links", [])
    if not any(one.get("includeVars") and one.get("keepTime") for one in links):
        yield "links", "a link to the other dashboards that keeps variables and time is needed"


@_rule("colours")
def _colours(dashboard: Json) -> Found:
    """Colours that mean something can be told apart by everybody."""
    for panel in promql.panels(dashboard):
        for colour in sorted(_coloured(panel) - COLOURS):
            yield panel["title"], f"{colour} is not in the palette"


def _coloured(node: object) -> set[str]:
    """Return all colours named in a panel."""
    found: set[str] = set()
    if isinstance(node, dict):
        for key, value in node.items():
            if key in {"color", "fixedColor", "fill"} and isinstance(value, str):
                found.add(value)
            found |= _coloured(value)
    elif isinstance(node, list):
        for one in node:
            found |= _coloured(one)
    # "fill" is also how a line is drawn.
    return found - {"dash", "solid", "dot"}


@_rule("table-columns")
def _table_columns(dashboard: Json) -> Found:
    """A table is closed: its columns are named, and so is what is left out."""
    for panel in promql.panels(dashboard):
        if panel["type"] != "table":
            continue
        kinds = [one["id"] for one in panel.get("transformations", [])]
        if "organize" not in kinds or any(not one["instant"] for one in panel["targets"]):
            yield panel["title"], "instant queries and named columns are needed"

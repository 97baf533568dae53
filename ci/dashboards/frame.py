"""The frame that all dashboards share: variables, links, annotations, and panels in rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from ci.chart import Json
from ci.dashboards.palette import BLUE, ORANGE
from ci.dashboards.panels import GRID, Panel
from ci.dashboards.query import DATASOURCE, RAW

#: What the built-in "show annotations" line looks like in every stored dashboard.
_BUILT_IN: Json = {
    "builtIn": 1,
    "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    "enable": True,
    "hide": True,
    "iconColor": BLUE,
    "name": "Annotations & Alerts",
    "type": "dashboard",
}
TAG = "npu-platform"
#: Grafana migrates upward from here; 39 is what Grafana 10 and 11 write.
SCHEMA_VERSION = 39


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels side by side, wrapped where the grid ends, below a heading."""

    title: str
    panels: Sequence[Panel]
    collapsed: bool = False


def _query_variable(
    name: str, label: str, query: str, *, many: bool = True, hidden: bool = False
) -> Json:
    found: Json = {
        "name": name,
        "label": label,
        "type": "query",
        "hide": 2 if hidden else 0,
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": f"variable-{name}"},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "regex": "",
        "skipUrlSync": False,
        "multi": many,
        "includeAll": many,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]}
        if many
        else {"text": "", "value": ""},
    }
    if many:
        # Matches series without the label, too: one cluster alone often has no such label.
        found["allValue"] = ".*"
    return found


DATASOURCE_VARIABLE: Json = {
    "name": "datasource",
    "label": "Data source",
    "type": "datasource",
    "hide": 0,
    "query": "prometheus",
    "refresh": 1,
    "regex": "",
    "skipUrlSync": False,
    "multi": False,
    "includeAll": False,
    "current": {"text": "", "value": ""},
}
#: The chart shows it where `monitoring.dashboards.multiCluster` is set.
CLUSTER_VARIABLE = _query_variable(
    "cluster", "Cluster", "label_values(npu_exporter_build_info, cluster)", hidden=True
)
JOB_VARIABLE = _query_variable(
    "job", "Job", 'label_values(up{cluster=~"$cluster", job=~"npu-platform-.*"}, job)'
)


def variable(name: str, label: str, series: str, *, many: bool = True) -> Json:
    """Return a variable with the values that the label ``name`` of ``series`` has."""
    return _query_variable(name, label, f"label_values({series}, {name})", many=many)


def _annotation(name: str, expr: str, *, title: str, colour: str) -> Json:
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": colour,
        "expr": expr,
        "step": "1m",
        "titleFormat": title,
        "textFormat": "{{node}}",
    }


def dashboard(
    uid: str,
    title: str,
    description: str,
    rows: Sequence[Row],
    *,
    variables: Sequence[Json] = (),
    since: str = "now-1h",
    nodes: str = "",
) -> Json:
    """Return a dashboard; ``nodes`` is a further selector for its annotations."""
    tainted = f"npu_thermal_guard_taint_active{{{RAW}{', ' + nodes if nodes else ''}}}"
    return {
        "id": None,
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["npu", TAG],
        "schemaVersion": SCHEMA_VERSION,
        "editable": False,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": since, "to": "now"},
        "links": [
            {
                "title": "NPU dashboards",
                "type": "dashboards",
                "tags": [TAG],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
                "icon": "external link",
                "tooltip": "The other dashboards of this platform",
                "url": "",
            }
        ],
        "annotations": {
            "list": [
                _BUILT_IN,
                _annotation(
                    "Taint set or removed",
                    f"changes({tainted}[2m]) > 0",
                    title="The thermal guard changed its taint",
                    colour=ORANGE,
                ),
            ]
        },
        "templating": {
            "list": [DATASOURCE_VARIABLE, CLUSTER_VARIABLE, JOB_VARIABLE, *variables],
        },
        "panels": arranged(rows),
    }


def arranged(rows: Sequence[Row]) -> list[Json]:
    """Return the panels of all rows with numbers and places; those of a collapsed row inside it."""
    found: list[Json] = []
    top = 0
    for row in rows:
        head: Json = {
            "type": "row",
            "title": row.title,
            "collapsed": row.collapsed,
            "gridPos": {"x": 0, "y": top, "w": GRID, "h": 1},
            "panels": [],
        }
        placed, below = _placed(row.panels, top + 1)
        found.append(head)
        if row.collapsed:
            head["panels"] = placed
            top += 1
        else:
            found += placed
            top = below
    number = 0
    for panel in found:
        for one in (panel, *panel.get("panels", [])):
            number += 1
            one["id"] = number
    return found


def _placed(panels: Sequence[Panel], top: int) -> tuple[list[Json], int]:
    """Return panels with places from ``top`` on, and the first free line below."""
    placed: list[Json] = []
    left = tallest = 0
    for panel in panels:
        if left + panel.width > GRID:
            top, left, tallest = top + tallest, 0, 0
        place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
        placed.append(panel.json | {"gridPos": place})
        left += panel.width
        tallest = max(tallest, panel.height)
    return placed, top + tallest

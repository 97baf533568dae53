"""Panels, one function per kind, written out as Grafana stores them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ci.chart import Json
from ci.dashboards.palette import BLUE, ORANGE, steps
from ci.dashboards.query import DATASOURCE, Query

#: Columns of Grafana's grid.
GRID = 24
_LAST: Json = {"values": False, "calcs": ["lastNotNull"], "fields": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel without its place; ``width`` and ``height`` are in units of Grafana's grid."""

    json: Json
    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """How numbers look: ``unit`` in Grafana's words, the text for no data, what colours say."""

    unit: str
    empty: str
    low: float | None = None
    high: float | None = None
    decimals: int | None = None
    mappings: Sequence[Json] = ()
    thresholds: Json | None = None

    def defaults(self, mode: str) -> Json:
        """Return the defaults of fields; ``mode`` says where colours come from."""
        found: Json = {
            "unit": self.unit,
            "color": {"mode": mode},
            "mappings": list(self.mappings),
            "thresholds": self.thresholds or steps(),
            "noValue": self.empty,
        }
        if self.low is not None:
            found["min"] = self.low
        if self.high is not None:
            found["max"] = self.high
        if self.decimals is not None:
            found["decimals"] = self.decimals
        return found


def _panel(
    kind: str,
    title: str,
    description: str,
    queries: Sequence[Query],
    *,
    options: Json,
    defaults: Json,
    overrides: Sequence[Json] = (),
) -> Json:
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "targets": [query.target(chr(ord("A") + place)) for place, query in enumerate(queries)],
        "fieldConfig": {"defaults": defaults, "overrides": list(overrides)},
        "options": options,
    }


def override(name: str, **properties: object) -> Json:
    """Return settings for one field; ``custom_x`` stands for the property ``custom.x``."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [
            {"id": key.replace("custom_", "custom.", 1), "value": value}
            for key, value in properties.items()
        ],
    }


def fixed(name: str, colour: str, *, dashed: bool = False) -> Json:
    """Return settings that draw one series in a colour of its own."""
    colours: Json = {"color": {"mode": "fixed", "fixedColor": colour}}
    if dashed:
        colours["custom_lineStyle"] = {"fill": "dash", "dash": [8, 6]}
        colours["custom_fillOpacity"] = 0
    return override(name, **colours)


def link(column: str, title: str, address: str) -> Json:
    """Return settings that make the cells of a column lead somewhere."""
    return override(column, links=[{"title": title, "url": address, "targetBlank": False}])


def lines(
    title: str,
    description: str,
    queries: Sequence[Query],
    values: Values,
    *,
    overrides: Sequence[Json] = (),
    stacked: bool = False,
    width: int = 12,
    height: int = 8,
) -> Panel:
    """Return series over time. Gaps stay gaps: they are facts."""
    defaults = values.defaults("palette-classic-by-name")
    defaults["custom"] = {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 2,
        "fillOpacity": 30 if stacked else 0,
        "showPoints": "auto",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if values.thresholds else "off"},
    }
    options = {
        "legend": {
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
            "calcs": ["lastNotNull", "max"],
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    json = _panel(
        "timeseries",
        title,
        description,
        queries,
        options=options,
        defaults=defaults,
        overrides=overrides,
    )
    return Panel(json=json, width=width, height=height)


def number(
    title: str,
    description: str,
    queries: Sequence[Query],
    values: Values,
    *,
    graph: bool = False,
    named: bool = False,
    width: int = 3,
    height: int = 4,
) -> Panel:
    """Return the last value, large; ``named`` shows the name of the series beside it."""
    options = {
        "reduceOptions": _LAST,
        "colorMode": "value",
        "graphMode": "area" if graph else "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "value_and_name" if named else "value",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    }
    json = _panel(
        "stat", title, description, queries, options=options, defaults=values.defaults("thresholds")
    )
    return Panel(json=json, width=width, height=height)


def table(
    title: str,
    description: str,
    queries: Sequence[Query],
    columns: Mapping[str, str],
    *,
    empty: str,
    overrides: Sequence[Json] = (),
    sort: tuple[str, bool] | None = None,
    size: tuple[int, int] = (GRID, 9),
) -> Panel:
    """Return a table of the columns in this order, field → heading; other fields are left out.

    ``sort`` is a heading, and whether the largest comes first; ``size`` is width and height.
    """
    defaults = Values(unit="none", empty=empty).defaults("thresholds")
    defaults["custom"] = {
        "align": "auto",
        "cellOptions": {"type": "auto"},
        "filterable": True,
        "inspect": False,
    }
    options: Json = {"showHeader": True, "cellHeight": "sm", "frameIndex": 0}
    if sort is not None:
        options["sortBy"] = [{"displayName": sort[0], "desc": sort[1]}]
    json = _panel(
        "table",
        title,
        description,
        queries,
        options=options,
        defaults=defaults,
        overrides=overrides,
    )
    json["transformations"] = [
        {"id": "merge", "options": {}},
        {
            "id": "filterFieldsByName",
            "options": {"include": {"names": list(columns)}},
        },
        {
            "id": "organize",
            "options": {
                "excludeByName": {},
                "indexByName": {name: place for place, name in enumerate(columns)},
                "renameByName": dict(columns),
            },
        },
    ]
    return Panel(json=json, width=size[0], height=size[1])


def timeline(
    title: str,
    description: str,
    queries: Sequence[Query],
    values: Values,
    *,
    width: int = 12,
    height: int = 8,
) -> Panel:
    """Return states over time, a row per series, each state with its name written on it."""
    defaults = values.defaults("thresholds")
    defaults["custom"] = {"fillOpacity": 80, "lineWidth": 0, "spanNulls": False}
    options = {
        "mergeValues": True,
        "showValue": "auto",
        "alignValue": "left",
        "rowHeight": 0.9,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    json = _panel("state-timeline", title, description, queries, options=options, defaults=defaults)
    return Panel(json=json, width=width, height=height)


def heatmap(
    title: str,
    description: str,
    queries: Sequence[Query],
    values: Values,
    *,
    bucket: float | None,
    width: int = 12,
    height: int = 8,
) -> Panel:
    """Return how many series are in which range: of ``bucket``'s size, or the query's own buckets.

    With None the query returns a classic histogram by ``le``.
    """
    options: Json = {
        "calculate": bucket is not None,
        "cellGap": 1,
        "cellValues": {"unit": "short"},
        "color": {
            "mode": "scheme",
            "scheme": "Blues",
            "steps": 32,
            "reverse": False,
            "exponent": 0.5,
            "fill": BLUE,
        },
        "exemplars": {"color": ORANGE},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": True},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": values.unit},
    }
    if bucket is None:
        for query in queries:
            if "by (le)" not in query.expr:
                raise ValueError(f"{title}: a histogram is summed by (le)")
    else:
        options["calculation"] = {
            "xBuckets": {"mode": "count", "value": ""},
            "yBuckets": {"mode": "size", "value": str(bucket)},
        }
        options["yAxis"] |= {"min": values.low, "max": values.high}
    defaults = values.defaults("thresholds")
    defaults["custom"] = {"scaleDistribution": {"type": "linear"}}
    json = _panel("heatmap", title, description, queries, options=options, defaults=defaults)
    if bucket is None:
        for target in json["targets"]:
            target["format"] = "heatmap"
    return Panel(json=json, width=width, height=height)


def text(title: str, content: str, *, width: int = GRID, height: int = 4) -> Panel:
    """Return a note in Markdown."""
    json: Json = {
        "type": "text",
        "title": title,
        "description": "",
        "options": {"mode": "markdown", "content": content},
    }
    return Panel(json=json, width=width, height=height)

"""Dashboards as a whole: places on the grid, links, what each must show."""

import json
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from ci.chart import Json
from ci.dashboards import catalogue, promql
from ci.dashboards.frame import Row, arranged
from ci.dashboards.palette import HEAT_LEVELS
from ci.dashboards.panels import GRID, Panel, Values, heatmap
from ci.dashboards.query import line
from npu.heat import Heat

BOARDS = catalogue.dashboards()
UIDS = {one["uid"] for one in BOARDS.values()}


@pytest.fixture(params=BOARDS)
def dashboard(request: pytest.FixtureRequest) -> Json:
    """Return each dashboard in turn."""
    return BOARDS[request.param]


def test_there_is_one_for_each_reader() -> None:
    """Operator, on-call engineer, team lead, developer and guard have theirs."""
    assert {"npu-fleet", "npu-node", "npu-team", "npu-service", "npu-thermal"} == UIDS


def test_panels_do_not_overlap(dashboard: Json) -> None:
    """Every panel is inside the grid, and no two share a cell; numbers are unique."""
    taken: set[tuple[int, int]] = set()
    for row in [dashboard["panels"], *(one.get("panels", []) for one in dashboard["panels"])]:
        inner = row is not dashboard["panels"]
        cells = set() if inner else taken
        for one in row:
            place = one["gridPos"]
            assert place["x"] + place["w"] <= GRID
            own = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not own & cells, one["title"]
            cells |= own
    numbers = [one["id"] for one in promql.panels(dashboard)]
    assert len(set(numbers)) == len(numbers)


def test_panels_wrap() -> None:
    """Panels that no longer fit into the grid go below the tallest of the line."""
    made = [Panel(json={"type": "stat"}, width=width, height=height)
            for width, height in ((12, 4), (12, 8), (8, 4))]  # fmt: skip
    head, *placed = arranged([Row(title="r", panels=made)])
    assert (head["type"], head["gridPos"]["y"]) == ("row", 0)
    assert [(one["gridPos"]["x"], one["gridPos"]["y"]) for one in placed] == [
        (0, 1),
        (12, 1),
        (0, 9),
    ]


def test_a_collapsed_row_holds_its_panels() -> None:
    """Grafana shows panels of a collapsed row only from inside that row."""
    made = [Panel(json={"type": "stat"}, width=12, height=4)]
    (head, second) = arranged(
        [Row(title="r", panels=made, collapsed=True), Row(title="s", panels=[])]
    )
    assert [one["gridPos"]["y"] for one in head["panels"]] == [1]
    assert second["gridPos"]["y"] == 1


def links(node: object) -> list[str]:
    """Return all addresses in a dashboard."""
    if isinstance(node, dict):
        own = [node["url"]] if node.get("url") else []
        return own + [one for value in node.values() for one in links(value)]
    if isinstance(node, list):
        return [one for value in node for one in links(value)]
    return []


def test_links_lead_to_dashboards_of_ours(dashboard: Json) -> None:
    """A link in a table leads to a dashboard that exists, and sets variables that it has."""
    for address in links(dashboard):
        parts = urlsplit(address)
        target = BOARDS[f"{parts.path.removeprefix('/d/')}.json"]
        known = {one["name"] for one in target["templating"]["list"]}
        query = parse_qs(parts.query, keep_blank_values=True)
        asked = {key.removeprefix("var-") for key in query if key.startswith("var-")}
        assert asked >= {"datasource"}
        assert asked <= known, address
        assert "${__url_time_range}" in query


def test_links_name_columns_that_are_shown(dashboard: Json) -> None:
    """A link takes its values from columns of the same table, by their headings."""
    for panel in promql.panels(dashboard):
        shown = {
            heading
            for one in panel.get("transformations", [])
            if one["id"] == "organize"
            for heading in one["options"]["renameByName"].values()
        }
        overrides = panel.get("fieldConfig", {}).get("overrides", [])
        if panel["type"] == "table":
            assert {one["matcher"]["options"] for one in overrides} <= shown, panel["title"]
        for address in links(overrides):
            asked = set(re.findall(r'__data\.fields\["([^"]+)"\]', address))
            assert asked
            assert asked <= shown, panel["title"]


def test_what_is_withheld_is_shown_with_its_reason() -> None:
    """Wherever taints or withdrawn slots are counted, a table says why."""
    for name in ("npu-fleet", "npu-node", "npu-thermal"):
        (table,) = [
            one
            for one in promql.panels(BOARDS[f"{name}.json"])
            if one["title"] == "Withheld, and why"
        ]
        columns = table["transformations"][-1]["options"]["renameByName"]
        assert {"What", "Reason", "Node"} <= set(columns.values())


def test_load_is_explained() -> None:
    """Where load of a program is shown, it is said why a large language model shows 30 to 40 %."""
    for name in ("npu-node", "npu-service"):
        texts = [
            one["options"]["content"]
            for one in promql.panels(BOARDS[f"{name}.json"])
            if one["type"] == "text"
        ]
        assert any("30 to 40 %" in text for text in texts)


def test_no_vendor_is_named() -> None:
    """Queries work for every vendor: they name no vendor, no resource and no zone."""
    for dashboard in BOARDS.values():
        text = " ".join(target["expr"] for _, _, target in promql.targets(dashboard))
        assert not re.search(
            r"rockchip|rknpu|rk35|huawei|ascend|npu-thermal|npu0", text, re.IGNORECASE
        )


def test_heat_levels_are_the_states() -> None:
    """Every heat state has a level, a name and a colour of its own."""
    assert {name for _, name, _ in HEAT_LEVELS} == {state.value for state in Heat}
    assert len({colour for _, _, colour in HEAT_LEVELS}) == len(HEAT_LEVELS)


def test_a_histogram_is_summed_by_its_buckets() -> None:
    """A heatmap of a histogram that is not summed by le shows nonsense and is refused."""
    with pytest.raises(ValueError, match="by \\(le\\)"):
        heatmap("t", "d.", [line("sum(x_bucket)", "")], Values(unit="s", empty="none"), bucket=None)


def test_files_are_regenerated(tmp_path: Path) -> None:
    """Writing leaves no difference, replaces what was changed and removes what is no dashboard."""
    folder = tmp_path / "dashboards"
    catalogue.write(folder)
    assert catalogue.differences(folder) == []
    fleet = folder / "npu-fleet.json"
    assert json.loads(fleet.read_text()) == BOARDS["npu-fleet.json"]
    fleet.write_text("{}")
    (folder / "old.json").write_text("{}")
    assert [file.name for file in catalogue.differences(folder)] == ["npu-fleet.json", "old.json"]
    catalogue.write(folder)
    assert catalogue.differences(folder) == []

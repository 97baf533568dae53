"""Values, schema, the all-options file and the templates tell the same story."""

import copy
import json
import re
from functools import cache

import pytest

from ci import chart, chart_readme
from ci.chart import CHART, Json, KeyPath
from ci.command import CommandError

EVERYTHING = CHART / "ci" / "everything-values.yaml"
#: Switches of a whole part: taking them back is tested by the features, and hides what they cover.
SWITCHES = {
    ("viewer", "enabled"),
    ("cleanup", "enabled"),
    ("tests", "enabled"),
    ("plugin", "enabled"),
    ("plugin", "mode"),
    ("plugin", "heat", "enabled"),
    ("exporter", "enabled"),
    ("guard", "enabled"),
    ("simulator", "enabled"),
    ("monitoring", "enabled"),
    ("monitoring", "skipApiCheck"),
    ("autoscaling", "skipApiCheck"),
    ("monitoring", "podMonitors", "enabled"),
    ("monitoring", "rules", "enabled"),
    ("monitoring", "dashboards", "enabled"),
}
#: Settings per alert; that each is used is a matter of the tests of the rules, all in one render.
ALERTS = ("monitoring", "rules", "alerts")
DIGEST = "sha256:" + "0" * 64


def resolve(node: Json, definitions: Json) -> Json:
    """Follow a reference inside the schema."""
    if "$ref" in node:
        found: Json = definitions[node["$ref"].removeprefix("#/$defs/")]
        return found
    return node


def declared(node: Json, definitions: Json, path: KeyPath = ()) -> set[KeyPath]:
    """Return every key the schema lists, blocks included."""
    found = set()
    for key, child in resolve(node, definitions).get("properties", {}).items():
        found |= {(*path, key)} | declared(child, definitions, (*path, key))
    return found


def present(values: Json, path: KeyPath = ()) -> set[KeyPath]:
    """Return every key in values, blocks included."""
    found = set()
    for key, value in values.items():
        found.add((*path, key))
        if isinstance(value, dict):
            found |= present(value, (*path, key))
    return found


def closed(node: Json, definitions: Json, path: str = "") -> list[str]:
    """Return objects with listed keys that accept others too."""
    node = resolve(node, definitions)
    problems = []
    if "properties" in node and node.get("additionalProperties", True) is True:
        problems.append(path or "(root)")
    for key, child in node.get("properties", {}).items():
        problems += closed(child, definitions, f"{path}.{key}".lstrip("."))
    return problems


def test_values_are_declared() -> None:
    """The schema lists every key of the values."""
    schema = chart.schema()
    listed = declared(schema, schema["$defs"])
    free = {("commonLabels",), ("plugin", "resourceNames")}
    missing = {
        path
        for path, _ in chart.leaves(chart.default_values())
        if path not in listed and path[:-1] not in free and path[-2] not in MAPS
    }
    assert missing == set()


#: Blocks with keys of the user's choosing, or of a Kubernetes type.
MAPS = {"requests", "limits", "nodeSelector", "podAnnotations", "podLabels", "annotations"} | {
    "matchLabels"
}
#: Keys of the schema that have no default to show, and what is below them.
WITHOUT_DEFAULT = (
    ("enabled",),
    ("thresholds", "temperatures"),
    ("podSecurity", "seLinuxOptions"),
    ("networkPolicies", "scrapeNamespaceSelector"),
    ("autoscaling", "prometheus", "authenticationRef"),
)


def test_schema_lists_only_values() -> None:
    """The schema lists no key that the values lack, but those that have no default."""
    schema = chart.schema()
    known = present(chart.default_values())
    extra = {
        path
        for path in declared(schema, schema["$defs"])
        if path not in known
        and not any(path[: len(block)] == block for block in WITHOUT_DEFAULT)
        and not {"affinity", "resources", "initialDelaySeconds"} & set(path)
    }
    assert extra == set()


def test_schema_is_closed() -> None:
    """Every block of ours refuses unknown keys; only Helm's own `global` is open."""
    schema = chart.schema()
    problems = closed(schema, schema["$defs"])
    assert problems == ["global"]
    for name, definition in schema["$defs"].items():
        if "properties" in definition and name != "named":
            assert definition.get("additionalProperties", True) is not True, name


def test_every_value_is_described() -> None:
    """Each key of the values has a comment."""
    text = (CHART / "values.yaml").read_text()
    assert [path for path, comment, _ in chart_readme.described(text) if not comment] == []


def test_no_default_takes_the_room_of_its_description() -> None:
    """In a table of three columns a block of a page leaves the other two a word a line."""
    table = chart_readme.readme((CHART / "values.yaml").read_text())
    defaults = [line.rsplit(" | ", 1)[1] for line in table.splitlines() if line.startswith("| `")]
    assert any(text.endswith("entries, see `values.yaml` |") for text in defaults)
    assert max(map(len, defaults)) < 400


def test_all_options_file_is_complete() -> None:
    """The all-options file sets every key, each to another value than the default."""
    defaults = dict(chart.leaves(chart.default_values()))
    options = chart.default_values(EVERYTHING)
    same = set()
    for path, value in defaults.items():
        node: object = options
        for key in path:
            node = node.get(key) if isinstance(node, dict) else None
        if node is None and path[-2] not in MAPS and "updateStrategy" not in path:
            same.add(path)
        if path[:3] == ALERTS and path[-1] == "enabled":
            continue
        if node == value and path not in SWITCHES | CREATE and path[-1] != "digest":
            same.add(path)
    assert same == set()


CREATE = {("plugin", "serviceAccount", "create"), ("guard", "rbac", "create")} | {
    (component, "serviceAccount", "create") for component in ("exporter", "guard", "simulator")
}


#: Without these `plugin.sharing.wholeDevices` is refused.
NEEDED_FOR_A_SPLIT = {("plugin", "sharing", "slots"), ("plugin", "sharing", "resourceName")}
#: What depends on them is refused without them.
NOTHING_WITHOUT = {("guard", "prometheus", "url"), ("exporter", "tls", "secretName")}


def set_at(values: Json, path: KeyPath, value: object) -> Json:
    """Return a copy of the values with one of them replaced."""
    changed = copy.deepcopy(values)
    node = changed
    for key in path[:-1]:
        node = node.setdefault(key, {})
    node[path[-1]] = value
    return changed


def other(path: KeyPath, default: object) -> object:
    """Return what a key is set to: its default, or something else where that is what it has."""
    if path[-1] == "digest":
        return DIGEST
    return not default if path in CREATE else default


def rendered(values: Json) -> str:
    """Return what values render to; the same values once."""
    return _rendered(json.dumps(values))


@cache
def _rendered(values: str) -> str:
    return chart.render(values=json.loads(values))


def used_keys() -> list[KeyPath]:
    """Return the keys whose use is shown one by one: blocks of Kubernetes types as one."""
    found: dict[KeyPath, None] = {}
    for path, _ in chart.leaves(chart.default_values()):
        if path in SWITCHES or path[:3] == ALERTS:
            continue
        for index, key in enumerate(path):
            if key in {"resources", "nodeSelector", "updateStrategy", "probes", "boards"}:
                found[path[: index + 1]] = None
                break
        else:
            found[path] = None
    return list(found)


@pytest.mark.parametrize("path", used_keys(), ids=".".join)
def test_every_value_is_used(path: KeyPath) -> None:
    """Taking one option back to its default changes what is rendered."""
    default: object = chart.default_values()
    for key in path:
        assert isinstance(default, dict)
        default = default[key]
    # Some options hide others: simulated boards the node's own directories, for example.
    without: dict[str, Json] = {
        "simulator": {"enabled": False},
        "global": {"imageRegistry": ""},
        "exporter": {"image": {}},
        "autoscaling": {"kind": "keda"},
    }
    claims: dict[str, Json] = {"plugin": {"mode": "dra"}}
    for base in ({}, without, claims):
        values = chart.default_values(EVERYTHING)
        for block, keys in base.items():
            values[block] |= keys
        if path in NEEDED_FOR_A_SPLIT or path == ("plugin", "dra", "readClaims"):
            values["plugin"]["sharing"]["wholeDevices"] = []
        if path[-1] in {"username", "password"}:
            values = set_at(values, (*path[:-1], "token"), "")
        if path in NOTHING_WITHOUT:
            with pytest.raises(CommandError, match=re.escape(".".join(path))):
                rendered(set_at(values, path, other(path, default)))
            return
        if path == ("plugin", "dra", "readClaims"):
            # Slots cannot do without.
            values["plugin"]["sharing"]["slots"] = 1
        if rendered(set_at(values, path, other(path, default))) != rendered(values):
            return
    pytest.fail(f"no template reads {'.'.join(path)}")

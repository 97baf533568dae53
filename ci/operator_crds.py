"""The Prometheus operator's own schemas of its objects, from its pinned Go module."""

import json
from pathlib import Path
from typing import cast

import yaml

from ci import gotool
from ci.cache import cache_dir
from ci.chart import Json
from ci.command import run

_MODULE = "github.com/prometheus-operator/prometheus-operator"
VERSION = "0.85.0"
_SUM = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
_FOLDER = "example/prometheus-operator-crd"


class OperatorSourceError(RuntimeError):
    """The module is not what was pinned."""


def schema(kind: str, *, cache: Path | None = None) -> Json:
    """Return the strict JSON schema of ``spec`` of a kind such as PodMonitor.

    Keys that the schema does not list are refused, which the API server would drop in silence.
    """
    root = cache or cache_dir()
    file = _module(root) / _FOLDER / f"monitoring.coreos.com_{kind.lower()}s.yaml"
    definition: Json = yaml.safe_load(file.read_text())
    (version,) = definition["spec"]["versions"]
    found = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return cast("Json", strict(found))


def _module(cache: Path) -> Path:
    answer = run(
        [gotool.go(cache), "mod", "download", "-json", f"{_MODULE}@v{VERSION}"],
        purpose="fetch the Prometheus operator's schemas",
        cwd=cache,
        env=gotool.environment(cache),
        timeout_seconds=300,
    )
    module = json.loads(answer)
    if module["Sum"] != _SUM:
        message = f"{_MODULE} {VERSION} has the hash {module['Sum']}, pinned is {_SUM}"
        raise OperatorSourceError(message)
    return Path(module["Dir"])


def strict(node: object) -> object:
    """Return a schema with closed objects and Go's ``^(?i)`` as Python's ``(?i)^``."""
    if isinstance(node, list):
        return [strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    closed = {key: strict(value) for key, value in node.items()}
    if closed.get("type") == "object" and "properties" in closed:
        closed.setdefault("additionalProperties", False)
    pattern = closed.get("pattern")
    if isinstance(pattern, str) and pattern.startswith("^(?i)"):
        closed["pattern"] = "(?i)^" + pattern.removeprefix("^(?i)")
    return closed

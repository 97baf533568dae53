"""The chart as data: rendered objects, values, schema."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ci import tools
from ci.command import run

CHART = Path(__file__).resolve().parent.parent / "charts" / "npu-platform"
#: The oldest and the newest Kubernetes the chart is checked against.
KUBERNETES_VERSIONS = ("1.30", "1.37")
#: All it supports.
EVERY_KUBERNETES = tuple(f"1.{minor}" for minor in range(30, 38))
HELM_VERSIONS = ("3", "4")

#: A Kubernetes object as JSON.
Json = dict[str, Any]
#: Where a value is, from the root.
KeyPath = tuple[str, ...]


def render(
    *files: Path,
    values: Mapping[str, object] | None = None,
    settings: Sequence[str] = (),
    release: str = "npu-platform",
    namespace: str = "npu-platform",
    helm: str = "4",
    kubernetes: str = KUBERNETES_VERSIONS[-1],
    apis: Sequence[str] = (),
    chart: Path = CHART,
) -> str:
    """Return what ``helm template`` prints; ``values`` count after ``files``, ``settings`` last.

    Raises CommandError with Helm's message.
    """
    arguments: list[str | Path] = [tools.helm(helm), "template", release, chart]
    arguments += ["--namespace", namespace, "--kube-version", f"{kubernetes}.0"]
    for file in files:
        arguments += ["--values", file]
    if values is not None:
        arguments += ["--values", "-"]
    for setting in settings:
        arguments += ["--set", setting]
    for api in apis:
        arguments += ["--api-versions", api]
    return run(
        arguments,
        purpose="render the chart",
        stdin=None if values is None else json.dumps(values),
        timeout_seconds=60,
    )


def notes(*settings: str, values: Mapping[str, object] | None = None) -> str:
    """Return what ``helm install`` says when it is done; no cluster is asked.

    ``values`` are those of a file, whose numbers are others to Helm than those of settings.

    Helm 4 only, which takes the newest Kubernetes it knows for granted; Helm 3.17 asks a cluster.
    Raises CommandError.
    """
    arguments: list[str | Path] = [tools.helm("4"), "install", "npu", CHART, "--dry-run=client"]
    arguments += ["--namespace", "npu-platform"]
    for setting in settings:
        arguments += ["--set", setting]
    if values is not None:
        arguments += ["--values", "-"]
    printed = run(
        arguments,
        purpose="read the chart's notes",
        stdin=None if values is None else json.dumps(values),
        timeout_seconds=60,
    )
    return printed.partition("\nNOTES:\n")[2]


def objects(text: str) -> list[Json]:
    """Return the objects in rendered ``text``."""
    return [document for document in yaml.safe_load_all(text) if document]


def default_values(file: Path = CHART / "values.yaml") -> Json:
    """Return the chart's values, or those of another file."""
    loaded: Json = yaml.safe_load(file.read_text())
    return loaded


def schema() -> Json:
    """Return the schema of the values."""
    loaded: Json = json.loads((CHART / "values.schema.json").read_text())
    return loaded


def leaves(values: Json, path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    """Yield every key that is no block of keys, with its value."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value

"""Every feature renders, with each Helm and for each Kubernetes, to objects the API accepts."""

import json
from collections import Counter
from collections.abc import Callable
from functools import cache

import kubernetes_validate
import pytest
import yaml
from yamllint import linter
from yamllint.config import YamlLintConfig

from ci import chart, tools
from ci.chart import EVERY_KUBERNETES, HELM_VERSIONS, KUBERNETES_VERSIONS, Json
from ci.command import run

Text = Callable[[str, str, str], str]

LINT = YamlLintConfig(
    "{extends: default, rules: {line-length: disable, comments-indentation: disable,"
    " indentation: {indent-sequences: whatever}, braces: {max-spaces-inside: 1},"
    # Helm ends each document with an empty line, and a script has two between functions.
    " empty-lines: {max: 2, max-end: 1}}}"
)
#: Objects whose kind the API server itself does not have.
FOREIGN_APIS = ("monitoring.coreos.com/", "grafana.integreatly.org/", "keda.sh/")


@pytest.mark.parametrize("helm", HELM_VERSIONS)
@pytest.mark.parametrize("kubernetes", KUBERNETES_VERSIONS)
def test_objects_are_valid(text: Text, feature: str, helm: str, kubernetes: str) -> None:
    """Every object satisfies the API schema of the oldest and newest Kubernetes."""
    objects = chart.objects(text(feature, helm, kubernetes))
    assert objects
    for item in objects:
        if not item["apiVersion"].startswith(FOREIGN_APIS):
            validate(json.dumps(item), kubernetes)


@pytest.mark.parametrize("kubernetes", EVERY_KUBERNETES[1:-1])
def test_objects_are_valid_in_between(text: Text, kubernetes: str) -> None:
    """The releases in between have the fields that the chart uses."""
    for name in ("default", "everything-values"):
        for item in chart.objects(text(name, "4", kubernetes)):
            if not item["apiVersion"].startswith(FOREIGN_APIS):
                validate(json.dumps(item), kubernetes)


@pytest.mark.parametrize("helm", HELM_VERSIONS)
def test_lint_finds_nothing(helm: str) -> None:
    """Helm's own linter has neither errors nor warnings; an icon it only recommends."""
    run(
        [tools.helm(helm), "lint", "--strict", chart.CHART, "--kube-version", "1.37.0"],
        purpose="lint the chart",
        timeout_seconds=60,
    )


@pytest.mark.parametrize("helm", HELM_VERSIONS)
def test_rendered_text_is_clean(text: Text, feature: str, helm: str) -> None:
    """Rendered YAML has no duplicate key, odd indentation or trailing space."""
    problems = list(linter.run(text(feature, helm, KUBERNETES_VERSIONS[-1]), LINT))
    assert [str(problem) for problem in problems] == []


def test_both_helms_agree(text: Text, feature: str) -> None:
    """Helm 3 and Helm 4 render the same objects."""
    newest = KUBERNETES_VERSIONS[-1]

    def identified(helm: str) -> dict[tuple[str, ...], Json]:
        return {identity(item): item for item in chart.objects(text(feature, helm, newest))}

    assert identified("3") == identified("4")


def test_no_object_twice(text: Text, feature: str) -> None:
    """No two objects have the same kind and name."""
    counted = Counter(map(identity, chart.objects(text(feature, "4", KUBERNETES_VERSIONS[-1]))))
    assert [what for what, count in counted.items() if count > 1] == []


def test_configuration_is_yaml(text: Text, feature: str) -> None:
    """Every configuration file in a ConfigMap is a mapping."""
    for item in chart.objects(text(feature, "4", KUBERNETES_VERSIONS[-1])):
        if item["kind"] == "ConfigMap":
            for name, content in item["data"].items():
                if name.endswith(".yaml"):
                    assert isinstance(yaml.safe_load(content), dict)


@cache
def validate(item: str, kubernetes: str) -> None:
    """Validate an object once, however many features have it alike."""
    kubernetes_validate.validate(json.loads(item), kubernetes, strict=True)


def identity(item: Json) -> tuple[str, ...]:
    """Return what makes an object this one."""
    metadata = item["metadata"]
    return (item["kind"], metadata.get("namespace", ""), metadata["name"])

"""Rendering for chart tests, each variant once per run."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from ci import chart
from ci.chart import CHART, Json

Render = Callable[..., list[Json]]

#: Values that the chart brings for its users, by what follows ``values-``.
READY_MADE = sorted(file.stem.removeprefix("values-") for file in CHART.glob("values-*.yaml"))
FEATURES = ["default", *READY_MADE, *sorted(file.stem for file in (CHART / "ci").glob("*.yaml"))]


def values_files(feature: str) -> tuple[Path, ...]:
    """Return the values files of a feature; the default render has none."""
    if feature == "default":
        return ()
    if feature in READY_MADE:
        return (CHART / f"values-{feature}.yaml",)
    return (CHART / "ci" / f"{feature}.yaml",)


@cache
def rendered_text(feature: str, helm: str, kubernetes: str) -> str:
    """Return a feature as rendered by one Helm for one Kubernetes."""
    return chart.render(*values_files(feature), helm=helm, kubernetes=kubernetes)


@pytest.fixture
def text() -> Callable[[str, str, str], str]:
    """Return the text of a feature, by Helm and Kubernetes version."""
    return rendered_text


@pytest.fixture
def render() -> Render:
    """Return a function that renders values, or a feature, to objects."""

    def objects(feature: str = "default", **values: object) -> list[Json]:
        if not values:
            return chart.objects(rendered_text(feature, "4", chart.KUBERNETES_VERSIONS[-1]))
        return chart.objects(chart.render(*values_files(feature), values=values))

    return objects


@pytest.fixture(params=FEATURES)
def feature(request: pytest.FixtureRequest) -> str:
    """Return each feature in turn."""
    return str(request.param)

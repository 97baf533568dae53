"""Monitors and rules are what the Prometheus operator's own schemas say."""

from collections.abc import Callable
from functools import cache

import jsonschema
import pytest

from ci import operator_crds
from ci.chart import Json

Render = Callable[..., list[Json]]


@cache
def schema(kind: str) -> Json:
    """Return the schema of a kind."""
    return operator_crds.schema(kind)


@pytest.mark.parametrize("feature", ["monitoring-values", "everything-values"])
def test_objects_fit_the_operator(render: Render, feature: str) -> None:
    """No key is misspelt or of another type."""
    found = [item for item in render(feature) if item["apiVersion"] == "monitoring.coreos.com/v1"]
    assert {item["kind"] for item in found} == {"PodMonitor", "PrometheusRule"}
    for item in found:
        jsonschema.validate(item["spec"], schema(item["kind"]))


def test_a_misspelt_key_is_found(render: Render) -> None:
    """The schemas are strict: a key that the operator does not know is refused."""
    (item,) = [one for one in render("monitoring-values") if one["kind"] == "PrometheusRule"]
    group = item["spec"]["groups"][0] | {"intervalX": "1m"}
    with pytest.raises(jsonschema.ValidationError, match="intervalX"):
        jsonschema.validate({"groups": [group]}, schema("PrometheusRule"))

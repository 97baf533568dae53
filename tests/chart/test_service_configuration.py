"""What the chart renders as configuration is what the services accept."""

from collections.abc import Callable

import pytest
import yaml

from ci import chart
from ci.chart import Json
from daemon import config
from exporter.settings import Settings as ExporterSettings
from npu.thresholds import Settings as ThresholdSettings
from plugin.config import PluginConfig

Render = Callable[..., list[Json]]
KINDS = {"plugin.yaml": PluginConfig, "exporter.yaml": ExporterSettings}


def files(objects: list[Json], name: str) -> list[str]:
    """Return every configuration file of this name."""
    return [o["data"][name] for o in objects if o["kind"] == "ConfigMap" and name in o["data"]]


@pytest.mark.parametrize("name", KINDS)
def test_services_accept_their_file(render: Render, feature: str, name: str) -> None:
    """No key is unknown to its service and no value refused."""
    for text in files(render(feature), name):
        config.parse(text, KINDS[name], source=f"{feature}: {name}")


def test_thresholds_are_accepted(render: Render, feature: str) -> None:
    """The thresholds in the guard's file are those that plugin and guard judge by."""
    for text in files(render(feature), "guard.yaml"):
        block = yaml.dump(yaml.safe_load(text)["thresholds"])
        config.parse(block, ThresholdSettings, source=feature)


def test_defaults_are_the_services_defaults() -> None:
    """A value left alone means what the service does without a file."""
    values = chart.default_values()
    parsed = config.parse(yaml.dump({"timing": values["thresholds"]["timing"]}), ThresholdSettings)
    assert parsed == ThresholdSettings()
    (plugin,) = files(chart.objects(chart.render()), "plugin.yaml")
    assert config.parse(plugin, PluginConfig) == PluginConfig()

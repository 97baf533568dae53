"""What the chart renders as configuration is what the services accept."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from ci import chart
from ci.chart import CHART, Json
from daemon import config
from exporter.settings import Settings as ExporterSettings
from plugin.config import PluginConfig
from simulator.settings import Settings as SimulatorSettings
from thermal.config import Config as GuardConfig

Render = Callable[..., list[Json]]
SERVICES = {
    "plugin": "plugin",
    "exporter": "exporter",
    "simulator": "simulator",
    "guard": "thermal",
}


def files(objects: list[Json], name: str) -> list[str]:
    """Return every configuration file of this name."""
    return [o["data"][name] for o in objects if o["kind"] == "ConfigMap" and name in o["data"]]


@cache
def checked(service: str, text: str, directory: Path) -> str:
    """Return what a service says about a configuration, empty where it is fine."""
    file = directory / f"{service}.yaml"
    file.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", SERVICES[service], "--check", f"--config={file}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=CHART.parent.parent,
        env={**os.environ, "NPU_SIMULATOR_NODE_NAME": "worker-1"},
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("service", SERVICES)
def test_services_accept_their_file(
    render: Render,
    feature: str,
    service: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Every rendered configuration passes the check of the program that reads it."""
    directory = tmp_path_factory.getbasetemp()
    for text in files(render(feature), f"{service}.yaml"):
        assert checked(service, text, directory) == ""


def test_defaults_are_the_services_defaults() -> None:
    """A value left alone means what the service does without a file."""
    objects = chart.objects(chart.render(settings=["simulator.enabled=true"]))

    def only(name: str) -> str:
        (text,) = files(objects, name)
        return text

    assert config.parse(only("plugin.yaml"), PluginConfig) == PluginConfig()
    assert config.parse(only("simulator.yaml"), SimulatorSettings) == SimulatorSettings()
    assert config.parse(only("guard.yaml"), GuardConfig) == GuardConfig()
    exporter = config.parse(only("exporter.yaml"), ExporterSettings)
    # The exporter counts what any vendor's plugin hands out; the chart names what ours does.
    for prefix in exporter.resource_prefixes:
        assert prefix.startswith(ExporterSettings().resource_prefixes)
    assert exporter.pod_retention_seconds == ExporterSettings().pod_retention_seconds
    assert exporter.collector_deadline_seconds == ExporterSettings().collector_deadline_seconds

"""NPUs by CDI name, on a container runtime that knows CDI."""

import json
from typing import Final

import pytest

from ci.demo.story import NAMESPACE
from ci.kube import until
from tests.cluster.platform.installed import Platform, events, npu_pod

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

FILE: Final = "/var/run/cdi/npu-platform.json"


def _file(platform: Platform, node: str) -> str:
    return platform.cluster.exec(node, ["cat", FILE]).stdout


def test_pod_gets_nodes_library_and_environment_by_name(platform: Platform) -> None:
    """The runtime resolves the name; the device opens; the file goes with the plugin."""
    node = platform.boards[0]
    platform.install("plugin.deviceInjection=cdi")
    platform.offers()
    until(lambda: _file(platform, node), seconds=60, what=f"{FILE} on {node}")
    with platform.pod(npu_pod("npu-by-name", node)):
        report = events(platform, "npu-by-name", seconds=30)
        devices = {e["path"]: e["opened"] for e in report if e["event"] == "device"}
        assert devices == {"/dev/dri/card1": True, "/dev/dri/renderD129": True}
        environment = next(e["variables"] for e in report if e["event"] == "environment")
        assert environment["NPU_DEVICE_IDS"] == "npu0"
    content = json.loads(_file(platform, node))
    (device,) = content["devices"]
    assert device["name"] == "npu0"
    by_path = [edit["hostPath"] for edit in device["containerEdits"]["deviceNodes"]]
    assert not any("by-path" in path for path in by_path), "the file has today's names"

    platform.install()
    platform.offers()

    until(
        lambda: _file(platform, node) == "",
        seconds=60,
        what=f"no {FILE} after the plugin that wrote it",
    )
    pods = platform.kube.items("pods", "-n", NAMESPACE)
    assert not any("cdi" in json.dumps(pod["spec"].get("volumes", [])) for pod in pods)

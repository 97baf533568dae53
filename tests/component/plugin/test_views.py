"""What the plugin tells people and Prometheus, and what its process contains."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.component.fake_kubelet import FakeKubelet, Held
from tests.component.plugin.plugin_process import (
    CHECKOUT,
    RESOURCE,
    PluginProcess,
    documented_metrics,
    exposed_metrics,
)

Start = Callable[..., PluginProcess]
HEALTHY = {"npu0": "Healthy"}


def test_allocations_name_the_holder(kubelet: FakeKubelet, start: Start) -> None:
    """Each device with its health and the container that holds it."""
    kubelet.held = (Held("vision", "detector-0", "main", RESOURCE, ("npu0",)),)
    kubelet.start()
    plugin = start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)

    answer = json.loads(plugin.get("/allocations")[1])

    (device,) = answer["devices"]
    assert device["id"] == "npu0"
    assert device["health"] == "Healthy"
    assert device["holder"] == {"namespace": "vision", "pod": "detector-0", "container": "main"}
    assert answer["holders"]["note"] is None


def test_allocations_work_without_pod_resources(kubelet: FakeKubelet, start: Start) -> None:
    """The devices are told all the same, with a note why no holder is known."""
    kubelet.lister.failure = (grpc.StatusCode.UNIMPLEMENTED, "not here")
    kubelet.start()
    plugin = start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)
    plugin.wait(lambda: plugin.logged("PodResources does not answer"))

    answer = json.loads(plugin.get("/allocations")[1])

    assert [device["holder"] for device in answer["devices"]] == [None]
    assert answer["holders"]["known"] is False
    assert "not here" in answer["holders"]["note"]
    plugin.wait(plugin.ready)


def test_held_device_that_is_not_found_is_listed_unhealthy(
    kubelet: FakeKubelet, start: Start
) -> None:
    """A restarted plugin does not know lost hardware, but the kubelet does."""
    kubelet.held = (Held("vision", "detector-0", "main", RESOURCE, ("npu3",)),)
    kubelet.start()

    start()

    kubelet.wait_for_devices(RESOURCE, {"npu0": "Healthy", "npu3": "Unhealthy"})


def test_metrics_are_complete_before_the_first_event(kubelet: FakeKubelet, start: Start) -> None:
    """Counters exist at zero, names follow the conventions, and the state is told."""
    kubelet.start()
    plugin = start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)
    plugin.wait(plugin.ready)

    text = plugin.get("/metrics")[1]

    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["npu_device_plugin_build_info"].samples[0].value == 1
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert "_created" not in text
    resource = (("resource", RESOURCE),)
    assert samples["npu_device_plugin_registrations_total", resource] == 1
    assert samples["npu_device_plugin_list_updates_total", resource] == 1
    assert samples["npu_device_plugin_allocations_total", resource] == 0
    assert samples["npu_device_plugin_allocate_duration_seconds_count", resource] == 0
    assert samples["npu_device_plugin_registration_seconds_count", resource] == 1
    assert samples["npu_device_plugin_stream_open", resource] == 1
    assert samples["npu_device_plugin_kubelet_restarts_total", ()] == 0
    assert samples["npu_device_plugin_slots", (("resource", RESOURCE), ("state", "healthy"))] == 1
    assert samples["npu_device_plugin_errors_total", (("reason", "no_stream"),)] == 0
    assert samples["npu_device_plugin_loop_errors_total", (("loop", "board"),)] == 0
    reason = (("device", "npu0"), ("reason", "ok"), ("resource", RESOURCE))
    assert samples["npu_device_plugin_device_health", reason] == 1


def test_missing_extra_device_is_told_and_present_one_is_given(
    kubelet: FakeKubelet, start: Start, place: Path, board: Path
) -> None:
    """Extra devices are given where the board has them; the rest shows in JSON and metric."""
    config = place / "extra.yaml"
    config.write_text("extraDevices: [/dev/dma_heap/system, /dev/rga]")
    kubelet.start()
    plugin = start(f"--config={config}")
    kubelet.wait_for_devices(RESOURCE, HEALTHY)

    given = {d.container_path: d.host_path for d in kubelet.allocate(RESOURCE, "npu0").devices}

    assert given["/dev/dma_heap/system"] == f"{board}/dev/dma_heap/system"
    assert "/dev/rga" not in given
    assert json.loads(plugin.get("/allocations")[1])["missingExtraDevices"] == ["/dev/rga"]
    assert plugin.metric("npu_device_plugin_extra_devices_missing") == 1


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ("resourceNames: {rknpu: kubernetes.io/npu}", "resourceNames.rknpu"),
        ("resourceNames: {rknpu: npu}", "resourceNames.rknpu"),
        ("library: {mode: copy}", "library.mode"),
        ("extraDevices: [/etc/shadow]", "extraDevices[0]"),
        ("extraDevices: [/dev/../etc/shadow]", "extraDevices[0]"),
        ("healht: {}", "healht"),
        ("health: {periodSeconds: 0}", "health.periodSeconds"),
    ],
)
def test_bad_configuration_ends_with_2_and_names_the_key(
    tmp_path: Path, config: str, named: str
) -> None:
    """One line, before anything was touched."""
    file = tmp_path / "plugin.yaml"
    file.write_text(config)

    done = subprocess.run(
        [sys.executable, "-m", "plugin", "--check", f"--config={file}"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert named in done.stderr
    assert done.stderr.count("\n") == 1


def test_path_too_long_for_a_socket_ends_with_2() -> None:
    """The limit of Unix addresses is told at the start, with the option that is wrong."""
    done = subprocess.run(
        [sys.executable, "-m", "plugin", f"--kubelet-dir=/{'k' * 90}"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "--kubelet-dir" in done.stderr
    assert "107" in done.stderr


def test_process_carries_nothing_it_does_not_use() -> None:
    """The memory goes into gRPC; API client, pages, OpenSSL and asyncio have no place in it."""
    code = (
        "import sys; from daemon import deferred; deferred.install();"
        "import plugin.service, plugin.main;"
        "unwanted = {'kubernetes', 'urllib3', 'jinja2', 'aiohttp', '_ssl',"
        " 'asyncio.base_events', 'grpc.aio._server', 'html.entities'};"
        "print(sorted(unwanted & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"


def test_every_metric_is_documented(kubelet: FakeKubelet, start: Start, place: Path) -> None:
    """The page has name, type and meaning of each metric, and no other metric."""
    kubelet.start()
    config = place / "everything.yaml"
    config.write_text("deviceInjection: cdi\nheat: {clampFrequency: true}\n")
    plugin = start(f"--config={config}", f"--cdi-dir={place}", f"--state-dir={place}")
    kubelet.wait_for_devices(RESOURCE, {"npu0": "Healthy"})
    documented, _of_claims = documented_metrics()

    assert exposed_metrics(plugin.get("/metrics")[1]) == documented

"""Free slots follow the heat of a board that is played in files; what is held stays."""

import json
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from npu import catalogue
from npu.layout import zone_temperature_path
from npu.tree import write_file
from tests.component.fake_kubelet import FakeKubelet, Held
from tests.component.plugin.plugin_process import FAST, RESOURCE, PluginProcess

Start = Callable[..., PluginProcess]
ALL = {"npu0-s0", "npu0-s1", "npu0-s2"}


def configured(place: Path, text: str) -> str:
    """Return the option for a configuration with this text."""
    file = place / "heat.yaml"
    file.write_text(f"{FAST}\n{text}\n")
    return f"--config={file}"


def set_celsius(board: Path, celsius: float) -> None:
    """Set the NPU's sensor."""
    zones = catalogue.load("rk3588").zones
    index = next(i for i, zone in enumerate(zones) if zone.type == "npu-thermal")
    path = board / zone_temperature_path(index).lstrip("/")
    write_file(path, f"{int(celsius * 1000)}\n".encode())


def holds(*ids: str) -> tuple[Held, ...]:
    return (Held("vision", "detector-0", "main", RESOURCE, ids),)


def healthy(*ids: str, of: set[str] = ALL) -> dict[str, str]:
    return {identifier: "Healthy" if identifier in ids else "Unhealthy" for identifier in of}


def test_emergency_withdraws_free_slots_at_once(
    kubelet: FakeKubelet, start: Start, place: Path, board: Path
) -> None:
    """Within a few readings, without guard and API server; metrics and JSON say why."""
    kubelet.held = holds("npu0-s1")
    kubelet.start()
    plugin = start(configured(place, "sharing: {slots: cores}"))
    kubelet.wait_for_devices(RESOURCE, healthy(*ALL))

    set_celsius(board, 104)

    kubelet.wait_for_devices(RESOURCE, healthy("npu0-s1"))
    labels = f'device="npu0",reason="heat_emergency",resource="{RESOURCE}"'
    plugin.wait(lambda: plugin.metric(f"npu_device_plugin_slots_withdrawn{{{labels}}}") == 2)
    assert plugin.metric('npu_device_plugin_slot_limit{device="npu0"}') == 0
    assert plugin.metric('npu_device_plugin_heat_state{device="npu0",state="emergency"}') == 1
    health = f'device="npu0",reason="ok",resource="{RESOURCE}"'
    assert plugin.metric(f"npu_device_plugin_device_health{{{health}}}") == 1
    answer = json.loads(plugin.get("/allocations")[1])
    assert {item["id"]: item["reason"] for item in answer["devices"]} == {
        "npu0-s0": "heat_emergency",
        "npu0-s1": "ok",
        "npu0-s2": "heat_emergency",
    }
    assert answer["heat"][0]["limit"] == 0
    # A slot that the kubelet chose before it saw the list: a refusal would fail the Pod for good.
    assert kubelet.allocate(RESOURCE, "npu0-s0").envs["NPU_DEVICE_IDS"] == "npu0-s0"
    kubelet.wait_for_devices(RESOURCE, healthy("npu0-s0", "npu0-s1"))


def test_first_list_on_a_hot_board_is_limited_already(
    kubelet: FakeKubelet, start: Start, place: Path, board: Path
) -> None:
    """A restart at a bad moment offers nothing for a second that must not be offered."""
    set_celsius(board, 84)
    kubelet.held = holds("npu0-s2")
    kubelet.start()

    start(configured(place, "sharing: {slots: cores}"))
    kubelet.wait(lambda: bool(kubelet.registrations and kubelet.endpoint(RESOURCE).lists))

    assert kubelet.endpoint(RESOURCE).lists[0] == healthy("npu0-s2")


def test_whole_device_goes_at_critical_unless_it_is_held(
    kubelet: FakeKubelet, start: Start, board: Path
) -> None:
    """By default a hot board keeps its NPU, and a critical one offers it to nobody new."""
    set_celsius(board, 84)
    kubelet.start()
    start()
    kubelet.wait_for_devices(RESOURCE, {"npu0": "Healthy"})

    set_celsius(board, 104)

    kubelet.wait_for_devices(RESOURCE, {"npu0": "Unhealthy"})
    kubelet.held = holds("npu0")
    kubelet.wait_for_devices(RESOURCE, {"npu0": "Healthy"}, seconds=25)


def test_kubelet_that_does_not_know_its_pods_yet_frees_nothing(
    kubelet: FakeKubelet, start: Start, place: Path, board: Path
) -> None:
    """After its restart a kubelet tells of no Pod for seconds: what is held stays healthy."""
    kubelet.held = holds("npu0-s1")
    kubelet.start()
    start(configured(place, "sharing: {slots: cores}"))
    kubelet.wait_for_devices(RESOURCE, healthy(*ALL))
    set_celsius(board, 104)
    kubelet.wait_for_devices(RESOURCE, healthy("npu0-s1"))
    calls = kubelet.lister.list_calls

    kubelet.held = ()
    kubelet.restart()

    kubelet.wait(lambda: kubelet.lister.list_calls > calls)
    kubelet.wait(lambda: len(kubelet.registrations) == 2 and bool(kubelet.registrations[-1].lists))
    # Two looks at the board later it is still so.
    set_celsius(board, 105)
    with pytest.raises(TimeoutError):
        kubelet.wait(lambda: kubelet.devices(RESOURCE) != healthy("npu0-s1"), seconds=2)


def test_without_pod_resources_nothing_is_withdrawn(
    kubelet: FakeKubelet, start: Start, place: Path, board: Path
) -> None:
    """Every slot might be held, and a held one must not turn unhealthy."""
    kubelet.lister.failure = (grpc.StatusCode.UNIMPLEMENTED, "not here")
    set_celsius(board, 104)
    kubelet.start()
    plugin = start(configured(place, "sharing: {slots: cores}"))
    kubelet.wait_for_devices(RESOURCE, healthy(*ALL))

    emergency = 'npu_device_plugin_heat_state{device="npu0",state="emergency"}'
    plugin.wait(lambda: plugin.metric(emergency) == 1)

    assert kubelet.devices(RESOURCE) == healthy(*ALL)


def test_switch_turns_it_off(kubelet: FakeKubelet, start: Start, place: Path, board: Path) -> None:
    """No reading, no state, no withdrawal."""
    set_celsius(board, 104)
    kubelet.start()
    plugin = start(configured(place, "sharing: {slots: cores}\nheat: {enabled: false}"))
    kubelet.wait_for_devices(RESOURCE, healthy(*ALL))

    assert json.loads(plugin.get("/allocations")[1])["heat"] == []
    assert "heat_state{" not in plugin.get("/metrics")[1]


def test_contradicting_thresholds_are_refused(place: Path, start: Start) -> None:
    """The plugin refuses what the guard refuses, and names the key."""
    plugin = start(configured(place, "thresholds: {hotCelsius: 95}"))

    assert plugin.process.wait(timeout=15) == 2
    assert "hotCelsius" in plugin.log_path.read_text()

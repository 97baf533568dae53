"""An NPU in slots: options, preference, limits, changes under running containers."""

import json
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from kubelet._proto import deviceplugin_v1beta1_pb2 as messages
from tests.component.fake_kubelet import FakeKubelet, Held
from tests.component.plugin.plugin_process import FAST, RESOURCE, PluginProcess

Start = Callable[..., PluginProcess]
SHARED = f"{RESOURCE}.shared"
THREE = {"npu0-s0": "Healthy", "npu0-s1": "Healthy", "npu0-s2": "Healthy"}


def sharing(place: Path, setting: str) -> str:
    """Return the option for a configuration with this ``sharing``."""
    file = place / "sharing.yaml"
    file.write_text(f"{FAST}\nsharing: {setting}\n")
    return f"--config={file}"


def holds(resource: str, *ids: str) -> tuple[Held, ...]:
    return (Held("vision", "detector-0", "main", resource, ids),)


def test_slots_are_listed_spread_and_handed_out(
    kubelet: FakeKubelet, start: Start, place: Path
) -> None:
    """A slot per core; the kubelet asks for a preference, and gets each slot's hint."""
    kubelet.start()
    start(sharing(place, "{slots: cores}"))
    kubelet.wait_for_devices(RESOURCE, THREE)
    endpoint = kubelet.endpoint(RESOURCE)

    assert endpoint.options == messages.DevicePluginOptions(get_preferred_allocation_available=True)
    answer = endpoint.stub.GetPreferredAllocation(
        messages.PreferredAllocationRequest(
            container_requests=[
                messages.ContainerPreferredAllocationRequest(
                    available_deviceIDs=["npu0-s2", "npu0-s1"],
                    must_include_deviceIDs=["npu0-s2"],
                    allocation_size=2,
                )
            ]
        ),
        timeout=5,
    )
    assert list(answer.container_responses[0].deviceIDs) == ["npu0-s2", "npu0-s1"]
    environment = kubelet.allocate(RESOURCE, "npu0-s1").envs
    assert environment["NPU_DEVICE_IDS"] == "npu0-s1"
    assert environment["NPU_CORE_HINT"] == "1"


def test_own_name_and_limit_per_container(kubelet: FakeKubelet, start: Start, place: Path) -> None:
    """Slots have a name of their own, and two for one container are refused with the key."""
    kubelet.start()
    plugin = start(sharing(place, "{slots: 3, resourceName: shared}"))
    kubelet.wait_for_devices(SHARED, THREE)

    with pytest.raises(grpc.RpcError, match=r"sharing\.maxSlotsPerContainer"):
        kubelet.allocate(SHARED, "npu0-s0", "npu0-s1")

    assert {endpoint.resource for endpoint in kubelet.registrations} == {SHARED}
    assert plugin.metric('npu_device_plugin_errors_total{reason="too_many_slots"}') == 1


def test_whole_device_to_slots_under_a_holder(
    kubelet: FakeKubelet, start: Start, place: Path
) -> None:
    """From the first list on the holder's device stays healthy and its slots wait."""
    kubelet.held = holds(RESOURCE, "npu0")
    kubelet.start()
    plugin = start(sharing(place, "{slots: cores}"))
    kubelet.wait(lambda: bool(kubelet.registrations and kubelet.endpoint(RESOURCE).lists))

    first = kubelet.endpoint(RESOURCE).lists[0]

    assert first == {"npu0": "Healthy"} | dict.fromkeys(THREE, "Unhealthy")
    slots = f'npu_device_plugin_slots{{resource="{RESOURCE}",state="withdrawn"}}'
    assert plugin.metric(slots) == 3
    labels = f'device="npu0",reason="held_in_other_mode",resource="{RESOURCE}"'
    assert plugin.metric(f"npu_device_plugin_slots_withdrawn{{{labels}}}") == 3
    listed = json.loads(plugin.get("/allocations")[1])["devices"]
    assert {item["reason"] for item in listed if item["state"] == "withdrawn"} == {
        "held_in_other_mode"
    }
    with pytest.raises(grpc.RpcError, match="still held as npu0"):
        kubelet.allocate(RESOURCE, "npu0-s0")

    kubelet.held = ()

    kubelet.wait_for_devices(RESOURCE, THREE, seconds=25)


def test_slots_with_own_name_to_whole_device_under_a_holder(
    kubelet: FakeKubelet, start: Start, board: Path
) -> None:
    """The old resource stays registered for its holder and ends empty."""
    kubelet.held = holds(SHARED, "npu0-s1")
    kubelet.start()
    start()

    kubelet.wait_for_devices(SHARED, {"npu0-s1": "Healthy"})
    kubelet.wait_for_devices(RESOURCE, {"npu0": "Unhealthy"})

    kubelet.held = ()
    kubelet.wait_for_devices(RESOURCE, {"npu0": "Healthy"}, seconds=25)
    kubelet.wait_for_devices(SHARED, {})


def test_first_list_waits_for_the_kubelet_but_not_for_ever(
    kubelet: FakeKubelet, start: Start, place: Path
) -> None:
    """Without PodResources the device is offered all the same."""
    kubelet.lister.failure = (grpc.StatusCode.UNAVAILABLE, "not yet")
    kubelet.start()
    start()

    kubelet.wait_for_devices(RESOURCE, {"npu0": "Healthy"})


def test_device_of_a_vanished_pod_in_the_checkpoint(
    kubelet: FakeKubelet, start: Start, place: Path
) -> None:
    """An unreadable checkpoint is told in words and hurts nothing."""
    kubelet.start()
    (kubelet.plugins / "kubelet_internal_checkpoint").write_text("{")
    plugin = start()
    kubelet.wait_for_devices(RESOURCE, {"npu0": "Healthy"})
    plugin.wait(lambda: plugin.logged("The kubelet's checkpoint cannot be used"))

    answer = json.loads(plugin.get("/allocations")[1])

    assert "kubelet_internal_checkpoint" in answer["checkpointProblem"]
    assert answer["staleCheckpointEntries"] == []

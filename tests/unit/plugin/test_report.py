"""What people, scripts and Prometheus are told agrees with the table."""

import json
import struct
from pathlib import Path

from daemon.http import Request
from kubelet.podresources import PodDevices
from npu.host import Host
from npu.model import CoreLoad, Inventory, Library, Refused
from plugin.board import Board
from plugin.checkpoint import CheckpointWatch
from plugin.claims import Claims
from plugin.config import LibraryConfig, PluginConfig, SharingConfig
from plugin.health import GOOD, Finding
from plugin.holders import Holders
from plugin.looks import Looker
from plugin.metrics import config_info
from plugin.report import Report
from tests.unit.plugin.boards import RESOURCE, drm_npu

BAD = Finding(verdict="bad", reason="driver_not_bound", detail="see dmesg")
REFUSED = Refused(what="fdab0000.npu", why="node_disabled", detail="enable it")


def report(root: Path, *, stuck_on: str | None = None) -> Report:
    entry = PodDevices(
        namespace="vision", pod="p", container="c", resource=RESOURCE, device_ids=("npu1",)
    )
    holders = Holders(lambda _seconds: (entry,), ours=lambda _resource: True)
    holders.step()
    config = PluginConfig(extra_devices=("/dev/rga",))
    looker = Looker(
        Host(root),
        config,
        scan=lambda: Inventory(npus=(drm_npu(0), drm_npu(1)), refused=(REFUSED,)),
        probe=lambda npu: BAD if npu.id == "npu1" else GOOD,
        # The load of npu0 is told, and that of npu1 is not: it is held, which says enough.
        load=lambda npu: (CoreLoad(core=0, ratio=0.5),) if npu.id == "npu0" else (),
    )
    board = Board(config, look=looker.look, claims=Claims(holders.known))
    board.step()
    checkpoint = CheckpointWatch(root / "checkpoint", ours=lambda _: True, held=holders.held)
    return Report(board, holders, checkpoint, stuck_on=lambda: stuck_on)


def test_json_tells_devices_holders_and_what_is_not_offered(tmp_path: Path) -> None:
    """One answer is enough to see why a Pod cannot have an NPU."""
    response = report(tmp_path).allocations(Request(path="/allocations", query={}, headers={}))

    answer = json.loads(response.body)
    assert response.content_type == "application/json"
    assert [device["health"] for device in answer["devices"]] == ["Healthy", "Unhealthy"]
    assert answer["devices"][0]["holder"] is None
    assert answer["devices"][1]["reason"] == "driver_not_bound"
    assert answer["devices"][1]["holder"] == {"namespace": "vision", "pod": "p", "container": "c"}
    assert answer["notOffered"] == [
        {"what": "fdab0000.npu", "reason": "node_disabled", "detail": "enable it"}
    ]
    assert answer["missingExtraDevices"] == ["/dev/rga"]
    assert len(answer["libraryProblems"]) == 2
    assert answer["libraries"] == []
    assert answer["holders"]["known"] is True


def test_settings_for_a_device_that_is_not_there_are_told(tmp_path: Path) -> None:
    """A name that fits nothing would do nothing, in silence."""
    sharing = SharingConfig(slots=2, resource_name="shared", whole_devices=("npu0", "npu7"))
    config = PluginConfig(sharing=sharing)
    looker = Looker(
        Host(tmp_path),
        config,
        scan=lambda: Inventory(npus=(drm_npu(0),)),
        probe=lambda _npu: GOOD,
    )
    board = Board(config, look=looker.look)
    board.step()

    assert board.missing_whole_devices == ("npu7",)


def test_settings_in_force_are_a_metric() -> None:
    """Of many nodes, those that got other settings are found by a query."""
    config = PluginConfig(sharing=SharingConfig(slots="cores"), library=LibraryConfig(mode="none"))

    (family,) = config_info(config)()

    (sample,) = family.samples
    assert sample.value == 1
    assert sample.labels == {
        "mode": "devicePlugin",
        "slots": "cores",
        "library": "none",
        "injection": "deviceSpecs",
        "heat": "on",
        "clamp": "off",
    }


def test_gauges_agree_with_the_table(tmp_path: Path) -> None:
    """States from zero, one health series per device, hardware by reason."""
    samples = {
        (sample.name.removeprefix("npu_device_plugin_"), *sorted(sample.labels.values())): (
            sample.value
        )
        for family in report(tmp_path, stuck_on="/sys/x").collect()
        for sample in family.samples
    }

    assert samples["slots", "healthy", RESOURCE] == 1
    assert samples["slots", RESOURCE, "unhealthy"] == 1
    assert samples["slots", RESOURCE, "withdrawn"] == 0
    assert samples["stale_checkpoint_entries", RESOURCE] == 0
    assert samples["devices", "healthy", RESOURCE] == 1
    assert samples["devices", RESOURCE, "unhealthy"] == 1
    assert samples["devices", RESOURCE, "unknown"] == 0
    assert samples["unaccounted_load", "npu0"] == 0
    assert samples["unaccounted_load", "npu1"] == 0
    assert samples["device_health", "npu0", "ok", RESOURCE] == 1
    assert samples["device_health", "driver_not_bound", "npu1", RESOURCE] == 0
    assert samples["hardware_refused", "node_disabled"] == 1
    assert samples["extra_devices_missing",] == 1
    assert samples["libraries_refused",] == 2
    assert samples["allocated", RESOURCE] == 1
    assert samples["board_stuck",] == 1


def test_library_is_compared_with_the_driver(tmp_path: Path) -> None:
    """A library that asks for a newer driver is handed out, told and counted."""
    path = tmp_path / "usr/lib/librkllmrt.so"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, 183))
    found = Library(name="librkllmrt.so", path="/usr/lib/librkllmrt.so", version="1.2.1")
    looker = Looker(
        Host(tmp_path),
        PluginConfig(),
        scan=lambda: Inventory(npus=(drm_npu(driver_version="0.9.6", libraries=(found,)),)),
        probe=lambda _npu: GOOD,
    )
    board = Board(PluginConfig(), look=looker.look)
    board.step()
    holders = Holders(lambda _seconds: (), ours=lambda _resource: True)
    checkpoint = CheckpointWatch(tmp_path / "checkpoint", ours=lambda _: True, held=holders.held)
    told = Report(board, holders, checkpoint)

    samples = {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in told.collect()
        for sample in family.samples
    }

    info = ("npu0", "librkllmrt.so", "1.2.1", "0.9.6")
    assert samples["npu_device_plugin_library_info", info] == 1
    # Neither its load nor its holders are known here: that is no 0.
    assert ("npu_device_plugin_unaccounted_load", ("npu0",)) not in samples
    assert samples["npu_device_plugin_library_driver_too_old", info[:2]] == 1
    assert told.as_data()["libraries"] == [
        {
            "device": "npu0",
            "path": "/usr/lib/librkllmrt.so",
            "version": "1.2.1",
            "driverVersion": "0.9.6",
            "neededDriverVersion": "0.9.8",
        }
    ]

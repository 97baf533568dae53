"""The CDI file says what Allocate would have said, with today's paths."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from npu import catalogue
from npu.host import Host
from npu.layout import expand
from npu.scan import scan
from npu.tree import materialise
from plugin.allocation import Offer, grant
from plugin.cdi import FILE_NAME, SpecFile, spec
from plugin.devices import build_table
from plugin.health import HealthState
from plugin.sharing import Sharing
from tests.unit.plugin.boards import RESOURCE, RESOURCES, drm_npu

PREFIX = "/var/lib/npu-platform/board"
WELL = HealthState(healthy=True, reason="ok")


def shared(*npus: str) -> Offer:
    """Return an offer of NPUs in two slots each."""
    found = {name: drm_npu(int(name.removeprefix("npu"))) for name in npus}
    table = build_table(
        found,
        dict.fromkeys(found, WELL),
        resources=RESOURCES,
        held={},
        sharing=Sharing(slots=2),
    )
    return Offer(table=table, cdi=True, max_slots_per_container=2)


def test_allocate_answers_names_and_environment_only() -> None:
    """Slots of one NPU are one name; two NPUs are two."""
    offer = shared("npu0", "npu1")

    given = grant(offer, RESOURCE, ["npu0-s1"], on_node=str)
    both = grant(offer, RESOURCE, ["npu0-s0", "npu1-s0"], on_node=str)

    assert given.cdi_names == ("npu-platform.io/npu=npu0",)
    assert (given.nodes, given.files) == ((), ())
    assert given.environment["NPU_DEVICE_IDS"] == "npu0-s1"
    assert given.environment["NPU_LIBRARY_DIR"] == "/opt/npu/lib"
    assert both.cdi_names == ("npu-platform.io/npu=npu0", "npu-platform.io/npu=npu1")


def test_file_has_resolved_paths_of_a_board(tmp_path: Path) -> None:
    """The by-path link is followed, because the file is younger than the numbers."""
    materialise(expand(catalogue.load("rk3588")), tmp_path, device_nodes=False)
    host = Host(tmp_path, PREFIX)
    (npu,) = scan(host).npus
    table = build_table({npu.id: npu}, {npu.id: WELL}, resources=RESOURCES, held={})

    content = spec(
        Offer(table=table, cdi=True, extra_devices=("/dev/rga",)),
        on_node=host.on_node,
        resolved=host.real_path,
    )

    assert content["kind"] == "npu-platform.io/npu"
    (device,) = json.loads(json.dumps(content["devices"]))
    assert device["name"] == "npu0"
    nodes = {node["path"]: node for node in device["containerEdits"]["deviceNodes"]}
    assert nodes["/dev/dri/card1"]["hostPath"] == f"{PREFIX}/dev/dri/card1"
    assert nodes["/dev/dri/renderD129"]["permissions"] == "rw"
    assert "/dev/rga" in nodes
    for mount in device["containerEdits"].get("mounts", []):
        assert "ro" in mount["options"]
        assert mount["containerPath"].startswith("/opt/npu/lib/")


def test_file_is_written_once_mended_and_removed(tmp_path: Path) -> None:
    """Unchanged content is not written again; a removed or changed file is; stop removes it."""
    file = tmp_path / FILE_NAME
    written = SpecFile(tmp_path, Host("/"))
    offer = shared("npu0")

    written.write(offer)
    first = file.stat()
    written.write(offer)
    assert file.stat().st_ino == first.st_ino
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE_NAME]

    file.write_text("{}")
    written.write(offer)
    assert json.loads(file.read_text())["devices"][0]["name"] == "npu0"
    file.unlink()
    written.write(replace(offer, extra_devices=("/dev/rga",)))
    assert "/dev/rga" in file.read_text()

    written.stop()
    written.stop()
    written.write(offer)
    assert not file.exists()


def test_directory_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Told once with path and errno, counted each time, and over when it works."""
    written = SpecFile(tmp_path / "absent", Host("/"))

    written.write(shared("npu0"))
    written.write(shared("npu0"))

    assert written.failures == 2
    assert written.problem is not None
    assert "absent" in written.problem
    assert len(caplog.records) == 1
    (tmp_path / "absent").mkdir()
    written.write(shared("npu0"))
    assert written.problem is None

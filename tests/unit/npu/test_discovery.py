"""Which NPUs are found on which board, and why hardware is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from npu.host import Host
from npu.scan import driver_of, scan

if TYPE_CHECKING:
    from tests.unit.npu.conftest import MakeBoard

DEVICE = "/sys/devices/platform/fdab0000.npu"
DRIVER = "/sys/bus/platform/drivers/RKNPU"
BASE = "/sys/firmware/devicetree/base"


@pytest.mark.parametrize(
    ("name", "model", "mode", "cores", "nodes", "zone", "version"),
    [
        ("rk3588", "rk3588", "drm", 3, ["card1", "renderD129"], "npu-thermal", "0.9.8"),
        ("rk3582", "rk3588", "drm", 2, ["card1", "renderD129"], "npu-thermal", "0.9.8"),
        ("rk3576", "rk3576", "drm", 2, ["card1", "renderD129"], "npu-thermal", "0.9.8"),
        ("rk3568", "rk3568", "drm", 1, ["card1", "renderD128"], "soc-thermal", "0.8.2"),
        ("rv1106", "rv1106", "misc", 1, ["rknpu"], "soc-thermal", "0.9.2"),
        ("rk3588-proc", "rk3588", "drm", 3, ["card1", "renderD129"], "npu-thermal", "0.9.8"),
        ("rk3588-panthor", "rk3588", "drm", 3, ["card1", "renderD129"], "npu-thermal", "0.9.8"),
        (
            "rk3588-panthor-first",
            "rk3588",
            "drm",
            3,
            ["card2", "renderD130"],
            "npu-thermal",
            "0.9.8",
        ),
        ("rk3588-dkms", "rk3588", "drm", 3, ["card2", "renderD129"], "npu-thermal", "0.9.8"),
        ("rk3588-rocket", "rk3588", "accel", 3, ["accel0"], "npu-thermal", None),
    ],
)
def test_one_npu_of_the_board_is_found(
    make_board: MakeBoard,
    name: str,
    model: str,
    mode: str,
    cores: int,
    nodes: list[str],
    zone: str,
    version: str | None,
) -> None:
    """Each board of the catalogue has exactly one NPU, with the facts its files state."""
    inventory = scan(make_board(name))
    (npu,) = inventory.npus
    assert inventory.refused == ()
    driver = "rocket" if mode == "accel" else "rknpu"
    assert (npu.id, npu.vendor, npu.driver) == ("npu0", "rockchip", driver)
    assert (npu.model, npu.mode, npu.cores, npu.driver_version) == (model, mode, cores, version)
    assert [Path(node.path).name for node in npu.nodes] == nodes
    assert npu.zone == zone
    assert npu.zone_is_npu == (zone == "npu-thermal")


@pytest.mark.parametrize("name", ["allwinner-a733", "qualcomm-sc7180"])
def test_a_foreign_board_has_nothing_of_ours(make_board: MakeBoard, name: str) -> None:
    """Other makers' NPUs, zones and devfreq entries are neither offered nor refused."""
    inventory = scan(make_board(name))
    assert inventory.npus == ()
    assert inventory.refused == ()


def test_an_empty_root_has_nothing(tmp_path: Path) -> None:
    """A machine without any of the files is a node without NPU, not an error."""
    inventory = scan(Host(tmp_path))
    assert (inventory.npus, inventory.refused) == ((), ())


def test_stable_paths_are_the_by_path_links(make_board: MakeBoard) -> None:
    """The kubelet gets names that survive a renumbering, the container fixed ones."""
    (npu,) = scan(make_board("rk3588-panthor-first")).npus
    assert [(node.role, node.stable_path, node.container_path) for node in npu.nodes] == [
        ("card", "/dev/dri/by-path/platform-fdab0000.npu-card", "/dev/dri/card1"),
        ("render", "/dev/dri/by-path/platform-fdab0000.npu-render", "/dev/dri/renderD129"),
    ]


def test_without_by_path_links_the_node_itself_is_handed_out(make_board: MakeBoard) -> None:
    """A distribution without udev's links still works."""
    (npu,) = scan(make_board("rk3588", {"/dev/dri/by-path": None})).npus
    assert [node.stable_path for node in npu.nodes] == ["/dev/dri/card1", "/dev/dri/renderD129"]


def test_a_by_path_link_to_another_node_is_not_believed(make_board: MakeBoard) -> None:
    """A stale link would hand the display to a workload."""
    host = make_board("rk3588")
    link = Path(host.root) / "dev/dri/by-path/platform-fdab0000.npu-card"
    link.unlink()
    link.symlink_to("../card0")
    (npu,) = scan(host).npus
    assert npu.nodes[0].stable_path == "/dev/dri/card1"


def test_a_service_that_sees_only_sys_finds_the_same_npu(make_board: MakeBoard) -> None:
    """The exporter mounts /sys alone; missing /dev is no missing device node."""
    (npu,) = scan(make_board("rk3588", {"/dev": None, "/usr": None, "/proc": None})).npus
    assert [node.path for node in npu.nodes] == ["/dev/dri/card1", "/dev/dri/renderD129"]
    assert npu.libraries == ()


def test_hardware_without_driver_is_refused(make_board: MakeBoard) -> None:
    """A kernel without the driver is named as the reason."""
    inventory = scan(make_board("rk3588-unbound"))
    (refused,) = inventory.refused
    assert inventory.npus == ()
    assert (refused.what, refused.why, refused.model) == (
        "fdab0000.npu",
        "driver_not_bound",
        "rk3588",
    )


def test_a_disabled_node_of_the_device_tree_is_refused(make_board: MakeBoard) -> None:
    """A board whose device tree switches the NPU off has no platform device at all."""
    host = make_board(
        "rk3588-unbound",
        {
            DEVICE: None,
            "/sys/bus/platform/devices/fdab0000.npu": None,
            f"{BASE}/npu@fdab0000/status": b"disabled\0",
        },
    )
    (refused,) = scan(host).refused
    assert (refused.what, refused.why) == ("/npu@fdab0000", "node_disabled")


def test_an_enabled_node_without_device_is_refused(make_board: MakeBoard) -> None:
    """The device tree alone is evidence of hardware."""
    host = make_board(
        "rk3588-unbound",
        {
            DEVICE: None,
            "/sys/bus/platform/devices/fdab0000.npu": None,
            f"{BASE}/npu@fdab0000/status": b"okay\0",
        },
    )
    (refused,) = scan(host).refused
    assert refused.why == "driver_not_bound"


def test_cores_without_driver_are_refused_once(make_board: MakeBoard) -> None:
    """A device tree that lists each core describes one NPU."""
    node = b"OF_NAME=npu\nOF_FULLNAME=/npu@%s\nOF_COMPATIBLE_0=rockchip,rk3588-rknn-core\n"
    files: dict[str, bytes | None] = {}
    for address in (b"fdab0000", b"fdac0000", b"fdad0000"):
        unit = f"/sys/devices/platform/{address.decode()}.npu"
        files[f"{unit}/uevent"] = node % address
        files[f"{BASE}/npu@{address.decode()}/compatible"] = b"rockchip,rk3588-rknn-core\0"
        files[f"{BASE}/npu@{address.decode()}/status"] = b"disabled\0"
    host = make_board("rk3588-unbound", {"/sys/bus/platform/devices": None, **files})
    (refused,) = scan(host).refused
    assert (refused.what, refused.why) == ("fdab0000.npu", "driver_not_bound")


@pytest.mark.parametrize("node", ["/dev/dri/card1", "/dev/dri/renderD129"])
def test_a_missing_device_node_is_refused(make_board: MakeBoard, node: str) -> None:
    """Half a pair cannot be given to a workload."""
    inventory = scan(make_board("rk3588", {node: None}))
    assert inventory.npus == ()
    assert [item.why for item in inventory.refused] == ["no_device_node"]


def test_a_bound_driver_without_any_node_is_refused(make_board: MakeBoard) -> None:
    """A driver whose DRM registration failed leaves no class entries."""
    changes: dict[str, bytes | None] = {
        "/sys/class/drm/card1": None,
        "/sys/class/drm/renderD129": None,
    }
    (refused,) = scan(make_board("rk3588", changes)).refused
    assert (refused.what, refused.why) == ("fdab0000.npu", "no_device_node")


def test_two_anonymous_drm_devices_are_not_guessed_at(make_board: MakeBoard) -> None:
    """Where two devices do not say what they are, none is taken for the NPU."""
    other = "/sys/devices/platform/vkms"
    host = make_board("rk3588-dkms", {f"{other}/uevent": b"", f"{other}/drm/card7/dev": b"226:7\n"})
    root = Path(host.root)
    (root / "sys/class/drm/card7").symlink_to(f"../..{other.removeprefix('/sys')}/drm/card7")
    (root / f"{other.lstrip('/')}/drm/card7/device").symlink_to("../../../vkms")
    inventory = scan(host)
    assert inventory.npus == ()
    (refused,) = inventory.refused
    assert refused.why == "no_device_node"
    assert "rknpu_drm" in refused.detail


def test_drm_and_misc_nodes_of_one_driver_are_one_npu(make_board: MakeBoard) -> None:
    """A port that has both interfaces is counted once, with all its nodes."""
    (npu,) = scan(
        make_board("rk3568", {"/sys/class/misc/rknpu/dev": b"10:58\n", "/dev/rknpu": b""})
    ).npus
    assert npu.mode == "drm"
    assert [node.role for node in npu.nodes] == ["card", "render", "misc"]


def test_an_anonymous_drm_device_is_not_taken_in_misc_mode(make_board: MakeBoard) -> None:
    """A virtual display beside a misc-mode NPU stays what it is."""
    virtual = "/sys/devices/platform/vkms"
    host = make_board("rv1106", {f"{virtual}/uevent": b"", f"{virtual}/drm/card0/dev": b"226:0\n"})
    root = Path(host.root)
    (root / "sys/class/drm").mkdir()
    (root / "sys/class/drm/card0").symlink_to("../../devices/platform/vkms/drm/card0")
    (root / f"{virtual.lstrip('/')}/drm/card0/device").symlink_to("../../../vkms")
    (npu,) = scan(host).npus
    assert [node.path for node in npu.nodes] == ["/dev/rknpu"]


def _add_second_npu(host: Host, unit: str) -> None:
    root = Path(host.root)
    device = root / "sys/devices/platform" / unit
    (device / "drm/card5").mkdir(parents=True)
    (device / "uevent").write_text(
        "DRIVER=RKNPU\nOF_FULLNAME=/npu@x\nOF_COMPATIBLE_0=rockchip,rk3588-rknpu\n"
    )
    (device / "drm/card5/device").symlink_to(f"../../../{unit}")
    (root / "sys/class/drm/card5").symlink_to(f"../../devices/platform/{unit}/drm/card5")
    (root / "dev/dri/card5").touch()
    (root / f"sys/bus/platform/drivers/RKNPU/{unit}").symlink_to(
        f"../../../../devices/platform/{unit}"
    )


@pytest.mark.parametrize(
    ("unit", "order"),
    [
        ("4fdab0000.npu", ["fdab0000.npu", "4fdab0000.npu"]),
        ("9000.npu", ["9000.npu", "fdab0000.npu"]),
        ("accelerator", ["fdab0000.npu", "accelerator"]),
    ],
)
def test_identifiers_follow_platform_addresses(
    make_board: MakeBoard, unit: str, order: list[str]
) -> None:
    """Addresses are compared as numbers; the unit's name does not matter otherwise."""
    host = make_board("rk3588")
    _add_second_npu(host, unit)
    npus = scan(host).npus
    assert [(npu.id, npu.unit) for npu in npus] == list(zip(["npu0", "npu1"], order, strict=True))
    paths = [node.container_path for npu in npus for node in npu.nodes]
    assert len(set(paths)) == len(paths)
    assert [npu.cores for npu in npus] == [None, None]


def test_a_second_unbound_npu_is_reported_beside_the_first(make_board: MakeBoard) -> None:
    """A driver that probed one of two NPUs does not hide the other."""
    host = make_board("rk3588")
    _add_second_npu(host, "fdaf0000.npu")
    (Path(host.root) / "sys/bus/platform/drivers/RKNPU/fdaf0000.npu").unlink()
    uevent = Path(host.root) / "sys/devices/platform/fdaf0000.npu/uevent"
    uevent.write_text(uevent.read_text().replace("DRIVER=RKNPU\n", ""))
    (Path(host.root) / "sys/bus/platform/devices/fdaf0000.npu").symlink_to(
        "../../../devices/platform/fdaf0000.npu"
    )
    inventory = scan(host)
    assert [npu.id for npu in inventory.npus] == ["npu0"]
    assert [(item.what, item.why) for item in inventory.refused] == [
        ("fdaf0000.npu", "driver_not_bound")
    ]


def test_control_files_and_module_link_are_no_devices(make_board: MakeBoard) -> None:
    """The driver's directory has more than devices."""
    host = make_board(
        "rk3588",
        {f"{DRIVER}/{name}": b"" for name in ("bind", "unbind", "uevent", "new_id")},
    )
    (Path(host.root) / f"{DRIVER.lstrip('/')}/module").symlink_to("../../../../module/rknpu")
    inventory = scan(host)
    assert len(inventory.npus) == 1
    assert inventory.refused == ()
    assert driver_of(inventory.npus[0]).load(host, inventory.npus[0])


@pytest.mark.parametrize(
    "changes",
    [
        {"/sys/kernel/debug": None},
        {"/sys/kernel/debug/rknpu/load": b""},
        {"/sys/kernel/debug/rknpu/load": b"\xff\xfe"},
    ],
)
def test_unreadable_load_leaves_the_device_and_unknown_cores(
    make_board: MakeBoard, changes: dict[str, bytes | None]
) -> None:
    """A missing measurement is no missing NPU, and no core count is made up."""
    (npu,) = scan(make_board("rk3588", changes)).npus
    assert npu.cores is None


def test_version_falls_back_to_the_driver_file(make_board: MakeBoard) -> None:
    """The module directory may be hidden; the driver states its version itself."""
    (npu,) = scan(make_board("rk3588", {"/sys/module": None})).npus
    assert npu.driver_version == "0.9.8"
    (npu,) = scan(
        make_board("rk3588", {"/sys/module": None, "/sys/kernel/debug/rknpu/version": b"?\n"})
    ).npus
    assert npu.driver_version is None


@pytest.mark.parametrize(
    ("content", "board"),
    [
        (b"Radxa ROCK 5B\0", "Radxa ROCK 5B"),
        (b"\xff\xff\0", None),
        (b"", None),
        (b"\0", None),
        (b"evil\x1b[31m\0", None),
        (None, None),
    ],
)
def test_board_model_is_text_or_unknown(
    make_board: MakeBoard, content: bytes | None, board: str | None
) -> None:
    """The model string reaches labels and terminals, so only printable text passes."""
    (npu,) = scan(make_board("rk3588", {f"{BASE}/model": content})).npus
    assert npu.board == board


@pytest.mark.parametrize(
    ("board", "model"),
    [
        (b"vendor,box\0rockchip,rk3566\0", "rk3568"),
        (b"vendor,box\0rockchip,rk3588s\0", "rk3588"),
        (b"vendor,box\0", "rk3568"),
        (None, "rk3568"),
    ],
)
def test_the_generic_compatible_takes_the_model_from_the_board(
    make_board: MakeBoard, board: bytes | None, model: str
) -> None:
    """Old device trees name the NPU only generically."""
    uevent = b"DRIVER=RKNPU\nOF_FULLNAME=/npu@fde40000\nOF_COMPATIBLE_0=rockchip,rknpu\n"
    changes = {
        "/sys/devices/platform/fde40000.npu/uevent": uevent,
        f"{BASE}/compatible": board,
    }
    (npu,) = scan(make_board("rk3568", changes)).npus
    assert npu.model == model

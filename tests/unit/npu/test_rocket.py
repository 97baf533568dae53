"""The mainline driver: its node, its cores, its estimate of load, and what it is not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from npu.drivers.rocket import RocketDriver
from npu.errors import ImplausibleError, MissingError, NpuError
from npu.model import Clock
from npu.scan import driver_of, scan

if TYPE_CHECKING:
    from npu.host import Host
    from tests.unit.npu.conftest import MakeBoard

UNITS = ("fdab0000.npu", "fdac0000.npu", "fdad0000.npu")
DEVICES = "/sys/devices/platform"


def _write(host: Host, path: str, text: str) -> None:
    (Path(host.root) / path.lstrip("/")).write_text(text)


def _other_accel(host: Host, name: str, uevent: str) -> None:
    """Add another maker's accelerator."""
    root = Path(host.root)
    device = root / "sys/devices/platform/other"
    (device / "accel" / name).mkdir(parents=True)
    (device / "uevent").write_text(uevent)
    (device / "accel" / name / "device").symlink_to("../../../other")
    (root / "sys/class/accel" / name).symlink_to(f"../../devices/platform/other/accel/{name}")
    (root / "dev/accel" / name).touch()


def test_it_is_one_npu_without_version_clock_or_library(make_board: MakeBoard) -> None:
    """Three core devices are one NPU; the vendor's runtime is not offered for it."""
    library = {"/usr/lib/librknnrt.so": b"\x7fELF librknnrt version: 2.3.2 (0@x)"}
    host = make_board("rk3588-rocket", dict(library))
    inventory = scan(host)
    (npu,) = inventory.npus
    assert inventory.refused == ()
    assert (npu.unit, npu.driver_version, npu.libraries) == ("fdab0000.npu", None, ())
    assert npu.load_is_estimate
    assert [(node.path, node.container_path) for node in npu.nodes] == [
        ("/dev/accel/accel0", "/dev/accel/accel0")
    ]
    assert driver_of(npu).clock(host, npu) == Clock()
    assert driver_of(npu).bound(host, npu) is True


def test_load_is_the_time_the_power_was_on(make_board: MakeBoard) -> None:
    """The first reading says nothing, the next one how much of the time since."""
    now = 100.0
    driver = RocketDriver(lambda: now)
    host = make_board("rk3588-rocket")
    (npu,) = scan(host).npus
    assert driver.load(host, npu) == ()
    _write(host, f"{DEVICES}/fdac0000.npu/power/runtime_active_time", "123956\n")
    now = 101.0
    assert [(load.core, load.ratio) for load in driver.load(host, npu)] == [
        (0, 0.0),
        (1, 0.5),
        (2, 0.0),
    ]


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("runtime_active_time", None, MissingError),
        ("runtime_active_time", "", ImplausibleError),
        ("runtime_active_time", "-5\n", ImplausibleError),
        ("runtime_active_time", "12 34\n", ImplausibleError),
        ("control", "on\n", MissingError),
    ],
)
def test_what_cannot_be_measured_is_no_load(
    make_board: MakeBoard, name: str, content: str | None, error: type[NpuError]
) -> None:
    """One core that cannot be read is no idle core; power that is always on is no full load."""
    host = make_board("rk3588-rocket")
    (npu,) = scan(host).npus
    path = f"{DEVICES}/fdad0000.npu/power/{name}"
    if content is None:
        (Path(host.root) / path.lstrip("/")).unlink()
    else:
        _write(host, path, content)
    with pytest.raises(error):
        RocketDriver().load(host, npu)


def test_without_a_bound_core_there_is_no_load(make_board: MakeBoard) -> None:
    """A driver that went away is missing, not idle."""
    host = make_board("rk3588-rocket")
    (npu,) = scan(host).npus
    for unit in UNITS:
        (Path(host.root) / "sys/bus/platform/drivers/rocket" / unit).unlink()
    with pytest.raises(MissingError):
        RocketDriver().load(host, npu)
    assert RocketDriver().powered(host, npu) is None
    assert RocketDriver().bound(host, npu) is False


@pytest.mark.parametrize(
    ("states", "powered"),
    [
        (["suspended"] * 3, False),
        (["suspended", "active", "suspended"], True),
        (["suspended", "suspending", "suspended"], True),
        (["suspended", "error", "suspended"], None),
        (["unsupported"] * 3, None),
    ],
)
def test_power_is_on_while_any_core_is(
    make_board: MakeBoard, states: list[str], powered: object
) -> None:
    """A state that says nothing is unknown unless another core decides."""
    host = make_board("rk3588-rocket")
    (npu,) = scan(host).npus
    for unit, state in zip(UNITS, states, strict=True):
        _write(host, f"{DEVICES}/{unit}/power/runtime_status", f"{state}\n")
    assert driver_of(npu).powered(host, npu) is powered


def test_cores_that_are_switched_off_are_not_counted(make_board: MakeBoard) -> None:
    """The driver uses the cores it is bound to, however many the chip has."""
    host = make_board("rk3588-rocket")
    (Path(host.root) / "sys/bus/platform/drivers/rocket/fdac0000.npu").unlink()
    inventory = scan(host)
    assert [npu.cores for npu in inventory.npus] == [2]
    assert inventory.refused == ()


@pytest.mark.parametrize(
    "uevent",
    [
        "DRIVER=ethosu\nOF_NAME=npu\nOF_FULLNAME=/npu@1\nOF_COMPATIBLE_0=arm,ethos-u85\n",
        "DRIVER=intel_vpu\nPCI_ID=8086:7D1D\nMODALIAS=pci:v00008086d00007D1D\n",
    ],
)
def test_another_accelerator_beside_it_is_left_alone(make_board: MakeBoard, uevent: str) -> None:
    """Accel numbers belong to all makers; the container sees the same path whatever the number."""
    host = make_board("rk3588-rocket")
    _other_accel(host, "accel1", uevent)
    (npu,) = scan(host).npus
    assert [node.path for node in npu.nodes] == ["/dev/accel/accel0"]
    root = Path(host.root)
    for folder in ("sys/class/accel", "dev/accel"):
        (root / folder / "accel0").rename(root / folder / "swap")
        (root / folder / "accel1").rename(root / folder / "accel0")
        (root / folder / "swap").rename(root / folder / "accel1")
    (npu,) = scan(host).npus
    assert [(node.path, node.container_path) for node in npu.nodes] == [
        ("/dev/accel/accel1", "/dev/accel/accel0")
    ]


def test_a_facade_under_another_name_is_found_while_it_is_the_only_one(
    make_board: MakeBoard,
) -> None:
    """An accel device that says nothing about itself is the façade; two would be a guess."""
    host = make_board("rk3588-rocket", {f"{DEVICES}/rknn/uevent": b"MODALIAS=platform:npu\n"})
    assert len(scan(host).npus) == 1
    _other_accel(host, "accel1", "MODALIAS=platform:else\n")
    inventory = scan(host)
    assert inventory.npus == ()
    (refused,) = inventory.refused
    assert (refused.what, refused.why) == ("fdab0000.npu", "no_device_node")
    assert "accel0, accel1" in refused.detail


@pytest.mark.parametrize("gone", ["/dev/accel/accel0", "/sys/class/accel"])
def test_a_missing_node_is_refused(make_board: MakeBoard, gone: str) -> None:
    """Bound cores without a node cannot be given to a workload."""
    inventory = scan(make_board("rk3588-rocket", {gone: None}))
    assert inventory.npus == ()
    assert [item.why for item in inventory.refused] == ["no_device_node"]


def test_the_exporter_s_view_without_dev_is_enough(make_board: MakeBoard) -> None:
    """A service that mounts /sys alone sees the same NPU."""
    (npu,) = scan(make_board("rk3588-rocket", {"/dev": None})).npus
    assert [node.path for node in npu.nodes] == ["/dev/accel/accel0"]


def test_npus_of_both_drivers_are_counted_together(make_board: MakeBoard) -> None:
    """Two drivers on one board never give the same identifier twice."""
    host = make_board("rk3588-rocket")
    root = Path(host.root)
    device = root / "sys/devices/platform/fc000000.npu"
    (device / "drm/card5").mkdir(parents=True)
    (device / "uevent").write_text(
        "DRIVER=RKNPU\nOF_FULLNAME=/npu@fc000000\nOF_COMPATIBLE_0=rockchip,rk3588-rknpu\n"
    )
    (device / "drm/card5/device").symlink_to("../../../fc000000.npu")
    (root / "sys/class/drm/card5").symlink_to("../../devices/platform/fc000000.npu/drm/card5")
    (root / "dev/dri/card5").touch()
    driver = root / "sys/bus/platform/drivers/RKNPU"
    driver.mkdir(parents=True)
    (driver / "fc000000.npu").symlink_to("../../../../devices/platform/fc000000.npu")
    assert sorted((npu.id, npu.driver) for npu in scan(host).npus) == [
        ("npu0", "rknpu"),
        ("npu1", "rocket"),
    ]

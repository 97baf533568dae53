"""Ascend chips are found, told apart and placed without any vendor library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu import ids
from npu.drivers.ascend import parse_version, part_of
from npu.scan import driver_of, scan

if TYPE_CHECKING:
    from tests.unit.npu.conftest import MakeBoard

PCI = "/sys/bus/pci/devices"
CARD_NODES = ["/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"]


@pytest.mark.parametrize(
    ("name", "model", "chips", "version", "unit"),
    [
        ("ascend910", "ascend910", 8, "23.0.5", "0000:c1:00.0"),
        ("ascend910b", "ascend910b", 8, "25.5.1", "0000:c1:00.0"),
        ("ascend910c", "ascend910c", 4, "24.1.rc3.7", "0000:9d:00.0"),
        ("ascend310p", "ascend310p", 2, "25.2.0", "davinci0"),
        ("ascend310", "ascend310", 4, "22.0.4", "0000:04:00.0"),
        ("ascend310b", "ascend310b", 1, "23.0.rc3", "davinci0"),
    ],
)
def test_chips_are_found_and_typed(
    make_board: MakeBoard, name: str, model: str, chips: int, version: str, unit: str
) -> None:
    """Each chip has the id of its node, and the model that PCI or the kind of machine tells."""
    host = make_board(name)
    inventory = scan(host)
    assert inventory.refused == ()
    assert [npu.id for npu in inventory.npus] == [f"davinci{n}" for n in range(chips)]
    for npu in inventory.npus:
        assert (npu.vendor, npu.driver, npu.mode) == ("huawei", "ascend", "davinci")
        assert (npu.model, npu.driver_version, npu.zone) == (model, version, None)
        assert npu.nodes[0].path == f"/dev/{npu.id}"
        assert all(node.stable_path == node.path for node in npu.nodes)
        assert driver_of(npu).bound(host, npu) is True
    assert inventory.npus[0].unit == unit


def test_cards_come_with_manager_nodes_and_the_files_that_exist(make_board: MakeBoard) -> None:
    """What a product may need is given where the board has it, and nothing else."""
    first = scan(make_board("ascend910")).npus[0]
    assert [node.path for node in first.nodes] == [
        "/dev/davinci0",
        "/dev/davinci_manager",
        "/dev/devmm_svm",
        "/dev/hisi_hdc",
    ]
    assert first.files == (
        "/usr/local/Ascend/driver/lib64",
        "/usr/local/Ascend/driver/include",
        "/usr/local/Ascend/driver/tools",
        "/usr/local/Ascend/driver/version.info",
        "/usr/local/dcmi",
        "/usr/local/bin/npu-smi",
        "/etc/ascend_install.info",
        "/etc/hccn.conf",
    )


def test_310b_has_its_own_manager_under_the_usual_name(make_board: MakeBoard) -> None:
    """Programs in a container open /dev/davinci_manager, whichever the board has."""
    (npu,) = scan(make_board("ascend310b")).npus
    manager = next(node for node in npu.nodes if "manager" in node.path)
    assert manager.path == "/dev/davinci_manager_docker"
    assert manager.container_path == "/dev/davinci_manager"
    assert "/usr/lib64/aicpu_kernels" in npu.files


def test_divided_chip_is_offered_in_parts(make_board: MakeBoard) -> None:
    """A virtual NPU appears in the container as /dev/davinci; its chip is not offered as well."""
    npus = scan(make_board("ascend310p-vnpu")).npus
    assert [npu.id for npu in npus] == ["davinci1", "vdavinci100", "vdavinci101"]
    assert [npu.model for npu in npus] == ["ascend310p", "ascend310p-vnpu", "ascend310p-vnpu"]
    assert npus[1].nodes[0].path == "/dev/vdavinci100"
    assert npus[1].nodes[0].container_path == "/dev/davinci100"


@given(st.integers(min_value=0, max_value=63), st.integers(min_value=0, max_value=15))
def test_parts_belong_to_chips(chip: int, part: int) -> None:
    """Sixteen ids per chip from 100 on, which are device identifiers of their own."""
    virtual = 100 + 16 * chip + part
    assert part_of(virtual) == chip
    assert ids.device_of(ids.virtual_device_id(virtual)) == f"vdavinci{virtual}"


def test_memory_node_is_that_of_the_chip_not_of_its_number(make_board: MakeBoard) -> None:
    """Ids do not follow bus addresses: chip 0 is at c1:00.0, next to node 6."""
    npus = scan(make_board("ascend910b")).npus
    assert [npu.numa_node for npu in npus] == [6, 4, 2, 0, 6, 4, 2, 0]


def test_without_dev_id_a_memory_node_is_told_only_where_all_share_it(
    make_board: MakeBoard,
) -> None:
    """A wrong memory node is worse than none."""
    without = {f"{PCI}/{a}/dev_id": None for a in ("0000:c1:00.0", "0000:81:00.0")}
    npus = scan(make_board("ascend910b", without)).npus
    assert [npu.numa_node for npu in npus] == [None, None, 2, 0, 6, 4, 2, 0]
    assert scan(make_board("ascend310p")).npus[1].numa_node == 0


def test_unknown_memory_node_is_absent(make_board: MakeBoard) -> None:
    """The kernel's -1 is no node."""
    host = make_board("ascend310", {f"{PCI}/0000:04:00.0/numa_node": b"-1\n"})
    assert scan(host).npus[0].numa_node is None


def test_groups_tell_who_is_near(make_board: MakeBoard) -> None:
    """Rings of four on a 910A server, cards of two on an A3, four chips behind one bridge."""
    assert [npu.groups[0] for npu in scan(make_board("ascend910")).npus] == ["ring0"] * 4 + [
        "ring1"
    ] * 4
    assert [npu.groups[-1] for npu in scan(make_board("ascend910c")).npus] == [
        *("card0", "card0", "card1", "card1")
    ]
    shared = {npu.groups[:3] for npu in scan(make_board("ascend310")).npus}
    assert shared == {("pci0000:00", "0000:00:02.0", "0000:02:00.0")}


def test_chip_without_manager_node_is_refused(make_board: MakeBoard) -> None:
    """Without the manager node no program works, so nothing is offered, and it is said."""
    inventory = scan(make_board("ascend910b", {"/dev/davinci_manager": None}))
    assert inventory.npus == ()
    assert {item.why for item in inventory.refused} == {"no_device_node"}
    assert len(inventory.refused) == 8
    assert "/dev/davinci_manager" in inventory.refused[0].detail


def test_accelerator_without_driver_is_refused(make_board: MakeBoard) -> None:
    """Hardware that is present is told with what to do."""
    inventory = scan(make_board("ascend910b-unbound"))
    assert inventory.npus == ()
    (refused,) = inventory.refused
    assert (refused.what, refused.why) == ("0000:01:00.0", "driver_not_bound")
    assert "HDK" in refused.detail


def test_chip_that_dropped_off_is_refused_and_others_stay(make_board: MakeBoard) -> None:
    """One lost chip of eight does not hide the seven."""
    inventory = scan(make_board("ascend910b", {"/dev/davinci3": None}))
    assert len(inventory.npus) == 7
    assert [(item.what, item.why) for item in inventory.refused] == [
        ("0000:01:00.0", "no_device_node")
    ]


def test_service_that_sees_only_sys_knows_the_chips(make_board: MakeBoard) -> None:
    """The exporter mounts /sys and nothing else."""
    npus = scan(make_board("ascend910b", {"/dev": None})).npus
    assert [npu.id for npu in npus] == [f"davinci{n}" for n in range(8)]


def test_network_card_of_the_same_vendor_is_none(make_board: MakeBoard) -> None:
    """The class tells, not the vendor."""
    host = make_board("ascend910b-unbound", {f"{PCI}/0000:01:00.0/class": b"0x020000\n"})
    assert scan(host).npus == ()
    assert scan(host).refused == ()


def test_unknown_chip_is_found_and_named_nothing(make_board: MakeBoard) -> None:
    """A chip of tomorrow is offered only where the administrator gives it a name."""
    changes = {f"{PCI}/0000:0{n}:00.0/device": b"0xd999\n" for n in range(4, 8)}
    assert {npu.model for npu in scan(make_board("ascend310", changes)).npus} == {"ascend"}


@pytest.mark.parametrize(
    "content", [b"", b"0x\n", b"garbage\n", b"\xff\xfe", b"0" * 5000], ids=repr
)
def test_garbage_in_a_file_of_one_device_hides_only_it(
    make_board: MakeBoard, content: bytes
) -> None:
    """A file that cannot be parsed never raises, and the other chips are as they were."""
    for name in ("vendor", "device", "class", "dev_id", "numa_node"):
        host = make_board("ascend910b", {f"{PCI}/0000:81:00.0/{name}": content})
        npus = scan(host).npus
        assert [npu.id for npu in npus] == [f"davinci{n}" for n in range(8)]
        assert npus[0].numa_node == 6


def test_ascend_card_beside_a_rockchip_npu(make_board: MakeBoard) -> None:
    """Both are found, each by its own driver, and neither takes the other's nodes."""
    host = make_board("rk3588-ascend")
    npus = scan(host).npus
    assert [(npu.id, npu.vendor) for npu in npus] == [
        *(("npu0", "rockchip"), ("davinci0", "huawei"))
    ]
    assert [node.path for node in npus[1].nodes] == ["/dev/davinci0", *CARD_NODES]
    assert all(node.path.startswith("/dev/dri/") for node in npus[0].nodes)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Version=25.5.1\nascendhal_version=7\n", "25.5.1"),
        ("a=b\nVersion = 24.1.rc3.7 \n", "24.1.rc3.7"),
        ("ascendhal_version=7.35\n", None),
        ("Version=\n", None),
        ("Version=$(id)\n", None),
    ],
)
def test_version_is_the_line_named_so(text: str, version: str | None) -> None:
    """Other versions in the file are not the driver's."""
    assert parse_version(text) == version

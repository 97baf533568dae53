"""What a Pod gets with Ascend chips, on every board of the catalogue."""

from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from npu import catalogue
from npu.host import Host
from npu.layout import expand
from npu.scan import scan
from npu.tree import materialise
from plugin.allocation import AllocationError, Grant, Offer, grant
from plugin.ascend import Injection, uses_runtime
from plugin.config import PluginConfig
from plugin.devices import build_table
from plugin.health import HealthState
from plugin.servicer import device_list
from plugin.sharing import Sharing

WELL = HealthState(healthy=True, reason="ok")
PREFIX = "/var/lib/npu-platform/board"
DRIVER = "/usr/local/Ascend/driver"
NAMES = PluginConfig().resource_names


class Make(Protocol):
    """Gives the offer of a board, with the default names of resources or others."""

    def __call__(self, board: str, *, resources: dict[str, str] | None = None) -> Offer:
        """Write the board and scan it."""
        ...


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def offer(board: str, *, resources: dict[str, str] | None = None) -> Offer:
        materialise(expand(catalogue.load(board)), tmp_path / board, device_nodes=False)
        npus = {npu.id: npu for npu in scan(Host(tmp_path / board)).npus}
        table = build_table(npus, dict.fromkeys(npus, WELL), resources=resources or NAMES, held={})
        return Offer(table=table)

    return offer


def given(offer: Offer, resource: str, *identifiers: str) -> Grant:
    return grant(offer, resource, identifiers, on_node=Host("/host", PREFIX).on_node)


@pytest.mark.parametrize(
    ("board", "resource", "count"),
    [
        ("ascend910", "huawei.com/Ascend910", 8),
        ("ascend910b", "huawei.com/Ascend910", 8),
        ("ascend910c", "huawei.com/Ascend910", 4),
        ("ascend310p", "huawei.com/Ascend310P", 2),
        ("ascend310", "huawei.com/Ascend310", 4),
        ("ascend310b", "huawei.com/Ascend310", 1),
        ("rk3588-ascend", "huawei.com/Ascend310", 1),
    ],
)
def test_resources_are_named_as_users_know_them(
    make: Make, board: str, resource: str, count: int
) -> None:
    """Manifests written for Huawei's plugin ask for the same name here."""
    slots = make(board).table.of(resource)
    assert [slot.id for slot in slots] == [f"davinci{n}" for n in range(count)]


def test_two_chips_come_with_their_nodes_and_one_set_of_everything_else(make: Make) -> None:
    """Nodes and driver files at their own paths, read-only files, ids of what was given."""
    got = given(make("ascend910b"), "huawei.com/Ascend910", "davinci3", "davinci1")

    assert [node.container_path for node in got.nodes] == [
        "/dev/davinci1",
        "/dev/davinci_manager",
        "/dev/devmm_svm",
        "/dev/hisi_hdc",
        "/dev/dvpp_cmdlist",
        "/dev/davinci3",
    ]
    assert all(node.host_path == f"{PREFIX}{node.container_path}" for node in got.nodes)
    assert [file.container_path for file in got.files] == [
        f"{DRIVER}/lib64",
        f"{DRIVER}/include",
        f"{DRIVER}/tools",
        f"{DRIVER}/version.info",
        "/usr/local/dcmi",
        "/usr/local/bin/npu-smi",
        "/etc/ascend_install.info",
        "/etc/hccn.conf",
        "/var/queue_schedule",
    ]
    assert all(file.host_path == f"{PREFIX}{file.container_path}" for file in got.files)
    assert got.environment == {"NPU_DEVICE_IDS": "davinci1,davinci3"}


def test_every_file_handed_out_exists(make: Make, tmp_path: Path) -> None:
    """A missing host path would keep the container from starting."""
    for board in catalogue.names():
        offer = make(board)
        host = Host(tmp_path / board)
        for slot in offer.table.slots:
            got = grant(offer, slot.resource, [slot.id], on_node=str)
            assert all(host.exists(node.host_path) for node in got.nodes), board
            assert all(host.exists(file.host_path) for file in got.files), board


def test_310b_gets_its_manager_under_the_usual_name(make: Make) -> None:
    """The container's path is the one that programs open."""
    got = given(make("ascend310b"), "huawei.com/Ascend310", "davinci0")
    paths = {node.container_path: node.host_path for node in got.nodes}
    assert paths["/dev/davinci_manager"] == f"{PREFIX}/dev/davinci_manager_docker"


def test_virtual_npu_is_offered_where_it_was_given_a_name(make: Make) -> None:
    """Nothing on the board tells how large a part is, so a name is the administrator's word."""
    assert make("ascend310p-vnpu").table.resources() == ("huawei.com/Ascend310P",)

    named = {**NAMES, "ascend310p-vnpu": "huawei.com/Ascend310P-4c"}
    offer = make("ascend310p-vnpu", resources=named)
    got = given(offer, "huawei.com/Ascend310P-4c", "vdavinci101")
    assert (got.nodes[0].host_path, got.nodes[0].container_path) == (
        f"{PREFIX}/dev/vdavinci101",
        "/dev/davinci101",
    )


def test_preset_of_values_tells_910b_apart(make: Make) -> None:
    """One key renames one kind of chip."""
    offer = make("ascend910b", resources={**NAMES, "ascend910b": "huawei.com/Ascend910B"})
    assert offer.table.resources() == ("huawei.com/Ascend910B",)


def test_with_the_vendors_runtime_only_the_environment_is_given(make: Make) -> None:
    """Both at once would inject the same nodes twice."""
    offer = replace(make("ascend910b"), ascend_runtime=True)
    got = given(offer, "huawei.com/Ascend910", "davinci0", "davinci5")
    assert (got.nodes, got.files) == ((), ())
    assert got.environment == {
        "NPU_DEVICE_IDS": "davinci0,davinci5",
        "ASCEND_VISIBLE_DEVICES": "0,5",
    }
    named = {**NAMES, "ascend310p-vnpu": "huawei.com/Ascend310P-4c"}
    part = replace(make("ascend310p-vnpu", resources=named), ascend_runtime=True)
    got = given(part, "huawei.com/Ascend310P-4c", "vdavinci100")
    assert got.environment["ASCEND_VISIBLE_DEVICES"] == "100"
    assert got.environment["ASCEND_RUNTIME_OPTIONS"] == "VIRTUAL"


def test_mixed_board_keeps_vendors_apart(make: Make) -> None:
    """An NPU of one vendor is nothing of the other's resource, nor of its container."""
    offer = make("rk3588-ascend")
    got = given(offer, "huawei.com/Ascend310", "davinci0")
    assert not [node for node in got.nodes if "/dri/" in node.host_path]
    assert "RKNN_NPU_DEVICE" not in got.environment
    got = given(offer, "rockchip.com/npu", "npu0")
    assert not [file for file in got.files if "Ascend" in file.host_path]
    with pytest.raises(AllocationError):
        given(offer, "huawei.com/Ascend310", "npu0")


def test_chips_are_not_shared(make: Make) -> None:
    """The driver lets in one container per chip, whatever Rockchip's NPUs are divided into."""
    npus = make("ascend910b").table.npus
    for sharing in (Sharing(slots=4, own_name=True), Sharing(slots="cores")):
        assert sharing.identifiers(npus["davinci2"]) == ("davinci2",)
        assert sharing.resource(npus["davinci2"], "a.b/c") == "a.b/c"


def test_kubelet_is_told_the_memory_node(make: Make) -> None:
    """Topology is set where it is known and unset, not empty, elsewhere."""
    table = make("ascend910b").table
    listed = device_list(table.of("huawei.com/Ascend910"), table.npus).devices
    assert [device.topology.nodes[0].ID for device in listed] == [6, 4, 2, 0, 6, 4, 2, 0]
    table = make("rk3588").table
    (listed_rockchip,) = device_list(table.slots, table.npus).devices
    assert not listed_rockchip.HasField("topology")


@pytest.mark.parametrize(
    ("injection", "variable", "expected"),
    [
        ("devices", "True", False),
        ("runtime", None, True),
        ("auto", None, False),
        ("auto", "True", True),
        ("auto", "False", False),
    ],
)
def test_who_injects(injection: Injection, variable: str | None, *, expected: bool) -> None:
    """``auto`` goes by what the runtime puts into the plugin's own container."""
    assert uses_runtime(injection, variable) is expected

"""The doctor's look at a node: device files, control groups, offer, who has the device open."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from npu import catalogue
from npu.host import Host
from npu.layout import expand
from npu.model import Inventory, Refused
from npu.scan import scan
from npu.tree import SIMULATED_DEVICE, materialise
from plugin.config import SharingConfig
from plugin.doctor import node, wedge
from plugin.doctor.finding import Finding
from tests.unit.plugin.boards import RESOURCE

POD = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """An RK3588 with real character devices."""
    materialise(expand(catalogue.load("rk3588"), SIMULATED_DEVICE), tmp_path, device_nodes=True)
    return Host(tmp_path)


def levels(findings: Iterator[Finding]) -> list[str]:
    found = list(findings)
    assert all(item.level == "ok" or item.remedy for item in found)
    return [item.level for item in found]


def test_nodes_that_are_fine_name_owner_and_mode(host: Host) -> None:
    """What somebody needs who writes supplementalGroups."""
    (card, render) = node.nodes(host, scan(host))

    assert (card.level, render.level) == ("ok", "ok")
    assert "/dev/dri/by-path/platform-fdab0000.npu-card: 10:" in card.text
    assert "owner 0:" in card.text
    assert "mode 0" in card.text


def test_node_that_went_away(host: Host) -> None:
    """Or was replaced by a file."""
    inventory = scan(host)
    card = Path(host.root) / "dev/dri/card1"
    card.unlink()
    assert levels(node.nodes(host, inventory)) == ["fail", "ok"]
    card.write_text("")
    assert levels(node.nodes(host, inventory)) == ["fail", "ok"]


def test_driver_that_crashed_and_left_its_node(host: Host) -> None:
    """The node is there and nobody is behind it."""
    gone = Refused(what="fdab0000.npu", why="driver_not_bound", detail="see its log")

    (found,) = node.nodes(host, Inventory(refused=(gone,)))

    assert found.level == "fail"
    assert "platform-fdab0000.npu-card" in found.text
    assert "ENODEV" in found.remedy
    other = Refused(what="fdab0000.npu", why="node_disabled", detail="enable it")
    assert list(node.nodes(host, Inventory(refused=(other,)))) == []


def test_links_that_systemd_needs(host: Host) -> None:
    """A simulated board has none and needs none; a real one without them is warned of."""
    npus = scan(host).npus
    (Path(host.root) / "simulated").unlink()
    assert node.control_groups(host, npus).level == "warn"
    (Path(host.root) / "dev/char").mkdir()
    for device in (Path(host.root) / "dev/dri").iterdir():
        if device.is_char_device() and not device.is_symlink():
            link = Path(host.root) / "dev/char/10:229"
            if not link.exists():
                link.symlink_to(f"../dri/{device.name}")
    assert node.control_groups(host, npus) == Finding(
        check="cgroup", level="ok", text="version v1", remedy=""
    )
    (Path(host.root) / "dev/char/10:229").unlink()
    (Path(host.root) / "simulated").touch()
    assert node.control_groups(host, npus).level == "ok"


def test_cgroup_version(host: Host) -> None:
    """By the file that only version 2 has."""
    controllers = Path(host.root) / "sys/fs/cgroup/cgroup.controllers"
    controllers.parent.mkdir(parents=True)
    controllers.write_text("cpu memory\n")

    assert "version v2" in node.control_groups(host, ()).text


@pytest.mark.parametrize(
    ("allocatable", "held", "expected"),
    [
        (None, {}, ["ok"]),
        ({}, {}, ["fail"]),
        ({RESOURCE: ()}, {}, ["fail"]),
        ({"example.com/other": ("a",)}, {}, ["fail"]),
        ({RESOURCE: ("npu0",)}, {}, ["ok"]),
        ({RESOURCE: ("npu0",)}, {RESOURCE: {"npu0"}}, ["warn"]),
        ({RESOURCE: ("npu0", "npu1")}, {RESOURCE: {"npu0"}}, ["ok"]),
    ],
)
def test_what_the_kubelet_hands_out(
    allocatable: dict[str, tuple[str, ...]] | None,
    held: dict[str, set[str]],
    expected: list[str],
) -> None:
    """Nothing to hand out fails, everything in use is a warning: both leave Pods Pending."""
    assert levels(node.offer(allocatable, held, {RESOURCE})) == expected


def test_sharing_is_the_first_suspect() -> None:
    """Told with what to try."""
    assert node.sharing(SharingConfig()).level == "ok"
    shared = node.sharing(SharingConfig(slots=3, resource_name="shared", whole_devices=("npu0",)))
    assert shared.level == "warn"
    assert "npu0 whole" in shared.text
    assert "RKNN_ERR_DEVICE_UNAVAILABLE" in shared.remedy


def process(proc: Path, pid: int, command: str, device: Path, group: str = "0::/init") -> None:
    """Make the files of a process that has a device open."""
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "fd/7").symlink_to(device)
    (proc / str(pid) / "comm").write_text(f"{command}\n")
    (proc / str(pid) / "cgroup").write_text(f"{group}\n")


@pytest.mark.parametrize(
    ("command", "holders", "level", "said"),
    [
        ("detector", {"vision/detector/main"}, "ok", "detector (pid 41"),
        ("detector", None, "ok", "detector"),
        ("Xorg", set(), "warn", "Xorg"),
        ("rknn_server", {"vision/detector/main"}, "warn", "rknn_server"),
    ],
)
def test_who_has_it_open(
    host: Host, tmp_path: Path, command: str, holders: set[str] | None, level: str, said: str
) -> None:
    """Use beside Kubernetes is a warning, and so is the debug proxy."""
    proc = tmp_path / "processes"
    process(proc, 41, command, Path(host.root) / "dev/dri/card1")

    found = wedge.users(host, scan(host).npus, holders, proc)

    assert (found.level, said in found.text) == (level, True)


@pytest.mark.parametrize(
    "group",
    [
        f"0::/kubepods/besteffort/pod{POD}/abc",
        f"0::/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-abc.scope",
    ],
)
def test_pod_of_a_process(host: Host, tmp_path: Path, group: str) -> None:
    """By its control group, whichever driver made it."""
    proc = tmp_path / "processes"
    process(proc, 41, "detector", Path(host.root) / "dev/dri/card1", group)

    assert f"Pod {POD}" in wedge.users(host, scan(host).npus, {"a/b/c"}, proc).text

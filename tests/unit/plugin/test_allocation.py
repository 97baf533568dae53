"""What a container gets is a function of the offer."""

import posixpath
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu.host import Host
from npu.model import DeviceNode, Npu
from plugin.allocation import AllocationError, FileGrant, NodeGrant, Offer, grant
from plugin.devices import build_table
from plugin.health import HealthState
from plugin.sharing import Sharing
from tests.unit.plugin.boards import RESOURCE, RESOURCES, drm_npu, misc_npu

WELL = HealthState(healthy=True, reason="ok")
LOST = HealthState(healthy=False, reason="lost", detail="fda00000.npu is not there any more")
PREFIX = "/var/lib/npu-platform/board"


def offer(*npus: Npu, health: HealthState = WELL) -> Offer:
    table = build_table(
        {npu.id: npu for npu in npus},
        {npu.id: health for npu in npus},
        resources=RESOURCES,
        held={},
    )
    return Offer(table=table)


def on_node(path: str) -> str:
    return Host("/host", PREFIX).on_node(path)


def test_drm_device_comes_with_card_and_render_node() -> None:
    """Host paths are stable links under the node's prefix; container paths are fixed."""
    given_ = grant(offer(drm_npu()), RESOURCE, ["npu0"], on_node=on_node)

    link = f"{PREFIX}/dev/dri/by-path/platform-fda00000.npu"
    assert given_.nodes == (
        NodeGrant(host_path=f"{link}-card", container_path="/dev/dri/card1"),
        NodeGrant(host_path=f"{link}-render", container_path="/dev/dri/renderD129"),
    )


def test_environment_names_what_the_runtime_opens() -> None:
    """The card in DRM mode; identifiers; cores as advice; where the library is."""
    given_ = grant(offer(drm_npu()), RESOURCE, ["npu0"], on_node=on_node)

    assert given_.environment == {
        "RKNN_NPU_DEVICE": "/dev/dri/card1",
        "NPU_DEVICE_IDS": "npu0",
        "NPU_CORE_HINT": "0,1,2",
        "NPU_LIBRARY_DIR": "/opt/npu/lib",
    }


def test_misc_device_without_library_and_core_count() -> None:
    """What is not known or not there is absent, not empty."""
    given_ = grant(offer(misc_npu()), RESOURCE, ["npu0"], on_node=on_node)

    assert given_.environment == {"RKNN_NPU_DEVICE": "/dev/rknpu", "NPU_DEVICE_IDS": "npu0"}
    assert given_.files == ()


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("neutral", ["/opt/npu/lib/librknnrt.so"]),
        ("system", ["/usr/lib/librknnrt.so"]),
        ("none", []),
    ],
)
def test_library_modes(mode: Literal["neutral", "system", "none"], expected: list[str]) -> None:
    """Neutral never shadows the image's library, system does, none mounts nothing."""
    given_ = grant(replace(offer(drm_npu()), library=mode), RESOURCE, ["npu0"], on_node=on_node)

    assert [file.container_path for file in given_.files] == expected
    assert ("NPU_LIBRARY_DIR" in given_.environment) == (mode == "neutral")
    assert all(
        file == FileGrant(host_path=f"{PREFIX}/usr/lib/librknnrt.so", container_path=path)
        for file, path in zip(given_.files, expected, strict=True)
    )


def test_extra_devices_come_under_their_own_path() -> None:
    """Each is given with every allocation."""
    extra = replace(offer(drm_npu()), extra_devices=("/dev/dma_heap/system",))

    given_ = grant(extra, RESOURCE, ["npu0"], on_node=on_node)

    assert given_.nodes[-1] == NodeGrant(
        host_path=f"{PREFIX}/dev/dma_heap/system", container_path="/dev/dma_heap/system"
    )


@pytest.mark.parametrize(
    ("identifiers", "resource", "reason"),
    [
        (["npu9"], RESOURCE, "unknown_device"),
        (["npu0"], "rockchip.com/npu-rocket", "unknown_device"),
        ([], RESOURCE, "no_device"),
    ],
)
def test_unknown_devices_are_refused(identifiers: list[str], resource: str, reason: str) -> None:
    """A refusal has a code for the metric and a text for the Pod's status."""
    with pytest.raises(AllocationError) as refusal:
        grant(offer(drm_npu()), resource, identifiers, on_node=on_node)

    assert refusal.value.reason == reason


def test_lost_device_is_refused_with_its_reason() -> None:
    """Starting a container on a device that is gone would fail later and say less."""
    with pytest.raises(AllocationError, match=r"lost: fda00000\.npu is not there") as refusal:
        grant(offer(drm_npu(), health=LOST), RESOURCE, ["npu0"], on_node=on_node)

    assert refusal.value.reason == "unhealthy_device"


def test_two_devices_in_one_container() -> None:
    """Both come with their nodes; a shared library comes once."""
    given_ = grant(offer(drm_npu(0), drm_npu(1)), RESOURCE, ["npu1", "npu0"], on_node=on_node)

    assert len(given_.nodes) == 4
    assert len(given_.files) == 1
    assert given_.environment["NPU_DEVICE_IDS"] == "npu0,npu1"


def shared(*held: str, maximum: int = 1) -> Offer:
    """Return an offer of two NPUs with a slot per core."""
    table = build_table(
        {f"npu{n}": drm_npu(n) for n in range(2)},
        {f"npu{n}": WELL for n in range(2)},
        resources=RESOURCES,
        held={RESOURCE: held},
        sharing=Sharing(slots="cores"),
    )
    return Offer(table=table, max_slots_per_container=maximum)


def test_slot_comes_with_the_whole_device_and_one_core_as_advice() -> None:
    """Nothing but the hint and the identifier differs from a whole NPU."""
    given_ = grant(shared(), RESOURCE, ["npu1-s2"], on_node=on_node)

    assert given_.nodes == grant(offer(drm_npu(1)), RESOURCE, ["npu1"], on_node=on_node).nodes
    assert given_.environment["NPU_DEVICE_IDS"] == "npu1-s2"
    assert given_.environment["NPU_CORE_HINT"] == "2"


def test_several_slots_where_they_are_allowed() -> None:
    """Device nodes come once; the hint is for the device that the runtime opens."""
    wanted = ["npu1-s0", "npu0-s2", "npu0-s0"]
    given_ = grant(shared(maximum=3), RESOURCE, wanted, on_node=on_node)

    assert len(given_.nodes) == 4
    assert given_.environment["NPU_DEVICE_IDS"] == "npu0-s0,npu0-s2,npu1-s0"
    assert given_.environment["NPU_CORE_HINT"] == "0,2"


def test_more_slots_than_allowed_are_refused() -> None:
    """Two slots are no larger share, which the Pod's author learns from the Pod's status."""
    with pytest.raises(AllocationError, match="maxSlotsPerContainer allows 1") as refusal:
        grant(shared(), RESOURCE, ["npu0-s0", "npu1-s0"], on_node=on_node)

    assert refusal.value.reason == "too_many_slots"


def test_slot_beside_a_holder_of_the_whole_device_is_refused() -> None:
    """A kubelet that chose it before it saw the list would break the holder's exclusive use."""
    with pytest.raises(AllocationError, match="npu0 is still held as npu0") as refusal:
        grant(shared("npu0"), RESOURCE, ["npu0-s0"], on_node=on_node)

    assert refusal.value.reason == "held_in_other_mode"


def test_two_devices_that_look_alike_in_a_container_are_refused() -> None:
    """One would silently replace the other."""
    other = drm_npu(1, nodes=(replace(drm_npu(1).nodes[0], container_path="/dev/dri/card1"),))

    with pytest.raises(AllocationError, match="one NPU per container"):
        grant(offer(drm_npu(0), other), RESOURCE, ["npu0", "npu1"], on_node=on_node)


names = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,12}", fullmatch=True)


@st.composite
def npus(draw: st.DrawFn) -> Npu:
    position = draw(st.integers(0, 12))
    nodes = tuple(
        DeviceNode(
            role="card",
            path=f"/dev/{name}",
            stable_path=f"/dev/dri/by-path/{name}",
            container_path=f"/dev/dri/{position}-{name}",
        )
        for name in draw(st.sets(names, min_size=1, max_size=3))
    )
    return drm_npu(position, nodes=nodes, cores=draw(st.none() | st.integers(1, 8)))


@given(
    boards=st.lists(npus(), min_size=1, max_size=4),
    healthy=st.booleans(),
    prefix=st.sampled_from(["", PREFIX]),
    mode=st.sampled_from(["neutral", "system", "none"]),
)
def test_every_advertised_healthy_identifier_can_be_allocated(
    *, boards: list[Npu], healthy: bool, prefix: str, mode: Literal["neutral", "system", "none"]
) -> None:
    """What the kubelet may ask for is never refused, and no path leaves the prefix."""
    state = WELL if healthy else LOST
    known = replace(offer(*boards, health=state), library=mode, extra_devices=("/dev/rga",))
    host = Host("/host", prefix)
    for slot in known.table.slots:
        if slot.state != "healthy":
            continue

        given_ = grant(known, slot.resource, [slot.id], on_node=host.on_node)

        assert given_.environment["NPU_DEVICE_IDS"] == slot.id
        files = [file.host_path for file in given_.files]
        for path in [node.host_path for node in given_.nodes] + files:
            assert posixpath.normpath(path) == path
            assert path.startswith((f"{prefix}/dev/", f"{prefix}/usr/lib/"))


def test_names_inside_containers_can_be_fixed() -> None:
    """The environment follows; a second NPU has no room under the same name."""
    pinned = replace(
        offer(drm_npu(0), drm_npu(1)), container_paths={"render": "/dev/dri/renderD128"}
    )

    given_ = grant(pinned, RESOURCE, ["npu0"], on_node=on_node)

    assert [node.container_path for node in given_.nodes] == [
        "/dev/dri/card1",
        "/dev/dri/renderD128",
    ]
    with pytest.raises(AllocationError, match="both appear as /dev/dri/renderD128"):
        grant(pinned, RESOURCE, ["npu0", "npu1"], on_node=on_node)
    card = replace(pinned, container_paths={"card": "/dev/dri/card0"})
    assert grant(card, RESOURCE, ["npu0"], on_node=on_node).environment["RKNN_NPU_DEVICE"] == (
        "/dev/dri/card0"
    )

"""The device table lists what is there, what was there, and what is held."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from npu.ids import slot_id
from npu.model import Inventory, Npu
from plugin.devices import DeviceTable, build_table, known_npus, whole_device
from plugin.health import HealthState
from tests.unit.plugin.boards import RESOURCE, RESOURCES, drm_npu

WELL = HealthState(healthy=True, reason="ok")
LOST = HealthState(healthy=False, reason="lost", detail="gone")


def table(
    *npus: Npu,
    health: Mapping[str, HealthState] | None = None,
    held: Mapping[str, tuple[str, ...]] | None = None,
) -> DeviceTable:
    return build_table(
        {npu.id: npu for npu in npus},
        health or {npu.id: WELL for npu in npus},
        resources=RESOURCES,
        held=held or {},
    )


def states(found: DeviceTable) -> dict[str, str]:
    return {slot.id: slot.state for slot in found.slots}


def two_slots(npu: Npu) -> tuple[str, ...]:
    return (slot_id(npu.id, 0), slot_id(npu.id, 1))


def test_whole_device_is_one_slot_named_like_it() -> None:
    """The default policy offers the NPU as it is."""
    assert whole_device(drm_npu(2)) == ("npu2",)


def test_healthy_and_lost_devices_are_listed() -> None:
    """A lost device stays in the list, unhealthy, with its reason."""
    found = table(drm_npu(0), drm_npu(1), health={"npu0": WELL, "npu1": LOST})

    assert states(found) == {"npu0": "healthy", "npu1": "unhealthy"}
    assert found.slots[1].reason == "lost"


def test_devices_sort_by_number() -> None:
    """Ten comes after two."""
    found = table(drm_npu(10), drm_npu(2))

    assert [slot.id for slot in found.slots] == ["npu2", "npu10"]


def test_device_without_resource_is_not_offered() -> None:
    """A driver that no key names is known and not listed."""
    found = table(drm_npu(0, driver="unheard-of"))

    assert found.slots == ()
    assert set(found.npus) == {"npu0"}


def test_model_key_wins_over_driver_key() -> None:
    """A name can be given to one model."""
    npu = drm_npu(0)

    found = build_table(
        {npu.id: npu},
        {npu.id: WELL},
        resources=RESOURCES | {"rk3588": "example.com/big-npu"},
        held={},
    )

    assert found.resources() == ("example.com/big-npu",)


def test_known_devices_are_never_forgotten() -> None:
    """What a scan does not find any more is kept as last seen."""
    before = table(drm_npu(0), drm_npu(1))

    assert set(known_npus(before, Inventory())) == {"npu0", "npu1"}


def test_held_device_that_was_never_seen_is_listed_unhealthy() -> None:
    """The kubelet must not take a lost device for a healthy one."""
    found = table(drm_npu(0), held={RESOURCE: ("npu4",)})

    assert states(found) == {"npu0": "healthy", "npu4": "unhealthy"}


def test_identifiers_of_others_are_ignored() -> None:
    """Neither other resources nor other grammars enter the table."""
    found = table(drm_npu(0), held={"nvidia.com/gpu": ("npu9",), RESOURCE: ("GPU-1",)})

    assert states(found) == {"npu0": "healthy"}


def test_identifier_of_the_old_mode_blocks_the_new_ones_of_its_device() -> None:
    """Going from whole devices to slots under a running Pod never hands out the device twice."""
    npu = drm_npu(0)
    other = drm_npu(1)

    found = build_table(
        {npu.id: npu, other.id: other},
        {npu.id: WELL, other.id: WELL},
        resources=RESOURCES,
        held={RESOURCE: ("npu0",)},
        policy=two_slots,
    )

    assert states(found) == {
        "npu0": "healthy",
        "npu0-s0": "withdrawn",
        "npu0-s1": "withdrawn",
        "npu1-s0": "healthy",
        "npu1-s1": "healthy",
    }


@given(
    present=st.sets(st.integers(0, 5)),
    well=st.sets(st.integers(0, 5)),
    held=st.sets(st.sampled_from([f"npu{n}{s}" for n in range(7) for s in ("", "-s0", "-s9")])),
)
def test_every_held_and_every_known_identifier_is_listed_once(
    present: set[int], well: set[int], held: set[str]
) -> None:
    """Nothing a container holds disappears, whatever the board and the policy are."""
    npus = {f"npu{n}": drm_npu(n) for n in present}

    found = build_table(
        npus,
        {f"npu{n}": WELL if n in well else LOST for n in present},
        resources=RESOURCES,
        held={RESOURCE: held},
        policy=two_slots,
    )

    identifiers = [slot.id for slot in found.slots]
    assert len(identifiers) == len(set(identifiers))
    assert held <= set(identifiers)
    assert {slot for npu in npus.values() for slot in two_slots(npu)} <= set(identifiers)

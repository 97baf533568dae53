"""The device table lists what is there, what was there, and what is held."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from npu.ids import device_of, slot_of
from npu.model import Inventory, Npu
from plugin.devices import DeviceTable, build_table, known_npus
from plugin.health import HealthState
from plugin.sharing import WHOLE, Sharing
from tests.unit.plugin.boards import RESOURCE, RESOURCES, drm_npu

SHARED = f"{RESOURCE}.shared"
TWO_SLOTS = Sharing(slots=2)
WELL = HealthState(healthy=True, reason="ok")
LOST = HealthState(healthy=False, reason="lost", detail="gone")


def table(
    *npus: Npu,
    health: Mapping[str, HealthState] | None = None,
    held: Mapping[str, tuple[str, ...]] | None = None,
    sharing: Sharing = WHOLE,
) -> DeviceTable:
    return build_table(
        {npu.id: npu for npu in npus},
        health or {npu.id: WELL for npu in npus},
        resources=RESOURCES,
        held=held or {},
        ours={SHARED},
        sharing=sharing,
    )


def states(found: DeviceTable) -> dict[str, str]:
    return {slot.id: slot.state for slot in found.slots}


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
    found = table(drm_npu(0), drm_npu(1), held={RESOURCE: ("npu0",)}, sharing=TWO_SLOTS)

    assert states(found) == {
        "npu0": "healthy",
        "npu0-s0": "withdrawn",
        "npu0-s1": "withdrawn",
        "npu1-s0": "healthy",
        "npu1-s1": "healthy",
    }


def test_whole_device_waits_for_the_holders_of_its_slots() -> None:
    """Going from slots to whole devices: nobody gets the device beside the last holders."""
    found = table(drm_npu(0), held={RESOURCE: ("npu0-s1",)})

    assert states(found) == {"npu0": "withdrawn", "npu0-s1": "healthy"}
    assert found.slots[0].reason == "held_in_other_mode"


def test_fewer_slots_wait_for_surplus_holders_only() -> None:
    """With two slots instead of four, the holder of the fourth leaves room for one more."""
    found = table(drm_npu(0), held={RESOURCE: ("npu0-s3",)}, sharing=TWO_SLOTS)

    assert states(found) == {"npu0-s0": "healthy", "npu0-s1": "withdrawn", "npu0-s3": "healthy"}


def test_new_name_waits_for_holders_under_the_old_one() -> None:
    """An identifier is listed under one resource only: the one under which it is held."""
    sharing = Sharing(slots=2, own_name=True)

    found = table(drm_npu(0), held={RESOURCE: ("npu0-s0",)}, sharing=sharing)

    assert {(slot.resource, slot.id, slot.state) for slot in found.slots} == {
        (RESOURCE, "npu0-s0", "healthy"),
        (SHARED, "npu0-s1", "healthy"),
    }
    whole = table(drm_npu(0), held={RESOURCE: ("npu0",)}, sharing=sharing)
    assert {(slot.resource, slot.id, slot.state) for slot in whole.slots} == {
        (RESOURCE, "npu0", "healthy"),
        (SHARED, "npu0-s0", "withdrawn"),
        (SHARED, "npu0-s1", "withdrawn"),
    }


def test_number_of_cores_is_remembered() -> None:
    """Slots per core do not vanish because the driver's file cannot be read for once."""
    before = table(drm_npu(0, cores=3))

    known = known_npus(before, Inventory(npus=(drm_npu(0, cores=None),)))

    assert known["npu0"].cores == 3
    assert (
        known_npus(DeviceTable(), Inventory(npus=(drm_npu(0, cores=None),)))["npu0"].cores is None
    )


def test_cores_are_advised_per_slot() -> None:
    """The table carries the advice; a held identifier of another mode has one too."""
    found = table(drm_npu(0), held={RESOURCE: ("npu0-s2",)}, sharing=TWO_SLOTS)

    assert {slot.id: slot.cores for slot in found.slots} == {
        "npu0-s0": (0, 1),
        "npu0-s1": (2,),
        "npu0-s2": (2,),
    }


sharings = st.builds(Sharing, slots=st.integers(1, 4) | st.just("cores"), own_name=st.booleans())


@given(
    present=st.sets(st.integers(0, 5)),
    well=st.sets(st.integers(0, 5)),
    held=st.sets(st.sampled_from([f"npu{n}{s}" for n in range(7) for s in ("", "-s0", "-s9")])),
    resource=st.sampled_from([RESOURCE, SHARED]),
    sharing=sharings,
)
def test_every_held_and_every_known_identifier_is_listed_once(
    present: set[int], well: set[int], held: set[str], resource: str, sharing: Sharing
) -> None:
    """Nothing a container holds disappears or turns unhealthy, whatever the board and the mode."""
    npus = {f"npu{n}": drm_npu(n) for n in present}

    found = build_table(
        npus,
        {f"npu{n}": WELL if n in well else LOST for n in present},
        resources=RESOURCES,
        ours={SHARED},
        held={resource: held},
        sharing=sharing,
    )

    identifiers = [slot.id for slot in found.slots]
    assert len(identifiers) == len(set(identifiers))
    assert held <= set(identifiers)
    assert {slot for npu in npus.values() for slot in sharing.identifiers(npu)} <= set(identifiers)
    for slot in found.slots:
        if slot.id in held:
            assert slot.resource == resource
            expected = int(slot.device.removeprefix("npu")) in well & present
            assert slot.state == ("healthy" if expected else "unhealthy")


@given(held=st.sets(st.sampled_from(["npu0", *(f"npu0-s{n}" for n in range(6))])), sharing=sharings)
def test_free_slots_never_add_to_holders_of_the_other_mode(
    held: set[str], sharing: Sharing
) -> None:
    """A whole device and slots are never free together, and never more than slots are in use."""
    found = table(drm_npu(0), held={RESOURCE: tuple(held)}, sharing=sharing)

    free = [slot for slot in found.slots if slot.state == "healthy" and slot.id not in held]
    whole = {slot_of(identifier) is None for identifier in held}
    assert all(
        {slot_of(slot.id) is None} >= whole and device_of(slot.id) == "npu0" for slot in free
    )
    assert not free or len(free) + len(held) <= sharing.count(drm_npu(0))

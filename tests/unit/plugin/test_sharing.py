"""An NPU is divided into slots, and slots are spread over NPUs."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu.ids import device_of, slot_id, slot_of
from plugin.sharing import WHOLE, Sharing, core_hint, preferred
from tests.unit.plugin.boards import RESOURCE, drm_npu


def test_one_slot_is_the_whole_device_under_its_name() -> None:
    """The default offers the NPU as it is."""
    assert WHOLE.identifiers(drm_npu(2)) == ("npu2",)
    assert not WHOLE.active
    assert Sharing(own_name=True).resource(drm_npu(), RESOURCE) == RESOURCE


def test_slots_by_number_and_by_core() -> None:
    """A number is a number; ``cores`` follows the driver, and without it there is one whole."""
    assert Sharing(slots=2).identifiers(drm_npu()) == ("npu0-s0", "npu0-s1")
    by_core = Sharing(slots="cores", own_name=True)
    assert by_core.identifiers(drm_npu(1, cores=3)) == ("npu1-s0", "npu1-s1", "npu1-s2")
    assert by_core.resource(drm_npu(1, cores=3), RESOURCE) == f"{RESOURCE}.shared"
    for cores in (None, 1):
        assert by_core.identifiers(drm_npu(1, cores=cores)) == ("npu1",)
        assert by_core.resource(drm_npu(1, cores=cores), RESOURCE) == RESOURCE


@pytest.mark.parametrize(
    ("cores", "slots", "hints"),
    [
        (3, 1, [(0, 1, 2)]),
        (3, 2, [(0, 1), (2,)]),
        (3, 3, [(0,), (1,), (2,)]),
        (3, 5, [(0,), (1,), (2,), (0,), (1,)]),
        (1, 2, [(0,), (0,)]),
        (None, 2, [(), ()]),
    ],
)
def test_core_hints(cores: int | None, slots: int, hints: list[tuple[int, ...]]) -> None:
    """Neighbours together, the first slots more, beyond the cores from the start again."""
    assert [core_hint(cores, slot, slots) for slot in range(slots)] == hints


@given(cores=st.integers(1, 16), slots=st.integers(1, 64))
def test_every_core_is_advised_to_somebody(cores: int, slots: int) -> None:
    """No core is left out, and no slot without advice; fewer slots than cores overlap nowhere."""
    hints = [core_hint(cores, slot, slots) for slot in range(slots)]

    assert all(hints)
    assert {core for hint in hints for core in hint} == set(range(cores))
    if slots <= cores:
        assert sum(map(len, hints)) == cores


def test_slots_of_one_container_are_of_different_devices() -> None:
    """Two slots of one device are no more than one."""
    devices = {slot_id(f"npu{n}", k): f"npu{n}" for n in range(2) for k in range(3)}

    assert preferred(devices, list(devices), [], 2) == ("npu0-s0", "npu1-s0")


def test_device_with_fewer_slots_in_use_comes_first() -> None:
    """What is listed and not available is in use or withdrawn."""
    devices = {slot_id(f"npu{n}", k): f"npu{n}" for n in range(2) for k in range(2)}

    assert preferred(devices, ["npu0-s1", "npu1-s0", "npu1-s1"], [], 1) == ("npu1-s0",)


def test_identifiers_of_no_grammar_are_taken_as_they_are() -> None:
    """A kubelet that asks nonsense gets an answer: an error would fail the Pod."""
    assert preferred({}, ["x", "y", "x"], ["x"], 2) == ("x", "y")
    assert preferred({}, [], [], 1) == ()


@st.composite
def questions(draw: st.DrawFn) -> tuple[dict[str, str], list[str], list[str], int]:
    devices = {
        slot_id(f"npu{n}", k): f"npu{n}"
        for n, slots in enumerate(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
        for k in range(slots)
    }
    available = draw(st.lists(st.sampled_from(sorted(devices)), min_size=1))
    required = draw(st.lists(st.sampled_from(sorted(available)), unique=True))
    size = draw(st.integers(len(required), len(devices)))
    return devices, available, required, size


@given(questions())
def test_preference_is_a_valid_choice(
    question: tuple[dict[str, str], list[str], list[str], int],
) -> None:
    """Required ones are there, no slot twice, all available, as many as asked if there are."""
    devices, available, required, size = question

    chosen = preferred(devices, available, required, size)

    assert set(required) <= set(chosen) <= set(available)
    assert len(chosen) == len(set(chosen)) == min(size, len(set(available)))


@given(questions())
def test_preference_spreads(
    question: tuple[dict[str, str], list[str], list[str], int],
) -> None:
    """No device could take over a slot from one that got two more, required ones aside."""
    devices, available, required, size = question

    chosen = preferred(devices, available, required, size)

    counts = Counter(map(device_of, chosen))
    movable = {device_of(identifier) for identifier in chosen if identifier not in required}
    room = {device_of(identifier) for identifier in set(available) - set(chosen)}
    for crowded in movable:
        for other in room - {crowded}:
            assert counts[crowded] - counts[other] <= 1
    assert all(slot_of(identifier) is not None for identifier in chosen)


@given(whole=st.sets(st.integers(0, 5)), slots=st.integers(2, 8))
def test_pools_of_a_split_never_share_a_device(whole: set[int], slots: int) -> None:
    """A device is in one pool, under one resource, whatever the split."""
    split = Sharing(slots=slots, own_name=True, whole=frozenset(f"npu{n}" for n in whole))

    for position in range(6):
        npu = drm_npu(position)
        identifiers = split.identifiers(npu)
        if position in whole:
            assert identifiers == (npu.id,)
            assert split.resource(npu, RESOURCE) == RESOURCE
        else:
            assert len(identifiers) == slots
            assert split.resource(npu, RESOURCE) == f"{RESOURCE}.shared"

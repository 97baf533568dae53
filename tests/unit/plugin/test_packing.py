"""Devices of one request are near to each other, and large groups stay whole."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.packing import packed

#: Two rings of four chips, two cards each.
RINGS = {f"davinci{n}": (f"ring{n // 4}", f"card{n // 2}") for n in range(8)}
ALL = tuple(RINGS)


def chips(*numbers: int) -> tuple[str, ...]:
    return tuple(f"davinci{n}" for n in numbers)


@pytest.mark.parametrize(
    ("available", "required", "size", "expected"),
    [
        (ALL, (), 1, (0,)),
        (ALL, (), 2, (0, 1)),
        (ALL, (), 4, (0, 1, 2, 3)),
        (ALL, (), 8, (0, 1, 2, 3, 4, 5, 6, 7)),
        # One chip is taken where something is taken already.
        (chips(1, 2, 3, 4, 5, 6, 7), (), 1, (1,)),
        (chips(0, 1, 2, 3, 5, 6, 7), (), 1, (5,)),
        # A pair stays on a card although others have lower numbers.
        (chips(0, 2, 4, 5), (), 2, (4, 5)),
        # Four go to the whole ring, not to the lower numbers.
        (chips(1, 2, 3, 4, 5, 6, 7), (), 4, (4, 5, 6, 7)),
        # Where no card is whole, a pair stays in a ring.
        (chips(0, 4, 6), (), 2, (4, 6)),
        # What is required decides where the rest goes.
        (ALL, chips(6), 2, (6, 7)),
        (ALL, chips(2), 4, (2, 3, 0, 1)),
        (chips(0, 1, 2, 3, 6), chips(6), 2, (6, 0)),
        # Not enough.
        (chips(3, 5), (), 4, (5, 3)),
        (chips(3), (), 0, ()),
    ],
)
def test_packing(
    available: tuple[str, ...], required: tuple[str, ...], size: int, expected: tuple[int, ...]
) -> None:
    """The innermost group with room wins; of several the one with the least."""
    got = packed(RINGS, available, required, size)
    assert sorted(got) == sorted(chips(*expected))
    assert got[: len(required)] == required


def test_devices_without_groups_are_taken_in_order() -> None:
    """Nothing is known of where they are."""
    assert packed({}, ["davinci10", "davinci2", "davinci9"], [], 2) == ("davinci2", "davinci9")


@given(
    st.sets(st.sampled_from(ALL)),
    st.integers(min_value=0, max_value=8),
    st.data(),
)
def test_answer_is_a_choice_of_the_available(
    available: set[str], size: int, data: st.DataObject
) -> None:
    """Required ones first, each once, never more than asked, all if there are enough."""
    required = data.draw(
        st.lists(st.sampled_from(sorted(available)), unique=True, max_size=size)
        if available
        else st.just([])
    )
    got = packed(RINGS, available, required, size)
    assert len(got) == len(set(got)) == min(size, len(available))
    assert set(required) <= set(got) <= available


@given(st.sets(st.sampled_from(ALL), min_size=1), st.integers(min_value=1, max_value=8))
def test_no_other_choice_crosses_fewer_rings(available: set[str], size: int) -> None:
    """A request is in one ring whenever that is possible."""
    got = packed(RINGS, available, [], size)
    others = combinations(sorted(available), len(got))
    assert len({RINGS[one][0] for one in got}) == min(
        len({RINGS[one][0] for one in other}) for other in others
    )

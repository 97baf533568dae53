"""The parsers' laws under hypothesis; the same laws run for longer under ``make fuzz``."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS, seeds

#: Targets that scan a whole board take a hundred times as long as a parser.
_SLOW = {"tree": 25, "captured": 10, "board_file": 40}


@pytest.mark.parametrize(("name", "content"), list(seeds()))
def test_the_inputs_to_start_from_keep_the_laws(name: str, content: bytes) -> None:
    """What a fuzzer begins with is sound."""
    TARGETS[name][0](content)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_no_content_breaks_a_law(name: str) -> None:
    """Any bytes, and what real files become by cutting, repeating and exchanging parts."""
    target, inputs = TARGETS[name]
    pieces = sorted({piece for content in inputs for piece in _pieces(content)})
    contents = st.one_of(
        st.binary(max_size=300),
        st.lists(st.one_of(st.sampled_from(pieces), st.binary(max_size=4)), max_size=30).map(
            b"".join
        ),
    )

    @settings(
        max_examples=_SLOW.get(name, 150),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(contents)
    def holds(content: bytes) -> None:
        target(content)

    holds()


def _pieces(content: bytes) -> list[bytes]:
    """Cut an input where letters, digits and signs meet."""
    pieces: list[bytes] = []
    for byte in content:
        kind = (chr(byte).isalpha(), chr(byte).isdigit())
        if pieces and (chr(pieces[-1][-1]).isalpha(), chr(pieces[-1][-1]).isdigit()) == kind:
            pieces[-1] += bytes([byte])
        else:
            pieces.append(bytes([byte]))
    return pieces

"""An identifier that was handed out is in use until the kubelet says otherwise."""

from plugin.claims import Claims, Known
from tests.unit.plugin.boards import RESOURCE


class Clock:
    """Claims whose kubelet and time a test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.known = Known()
        self.claims = Claims(lambda: self.known, monotonic=lambda: self.now)

    def answered(self, at: float, *identifiers: str) -> set[str]:
        """Return what is in use after an answer to a question asked ``at`` that time."""
        self.known = Known(held={RESOURCE: identifiers}, asked_at=at)
        self.now = max(self.now, at)
        return set(self.claims.held().get(RESOURCE, ()))


def test_given_identifier_is_in_use_before_it_is_listed() -> None:
    """Neither no answer nor an answer to an earlier question frees it."""
    clock = Clock()
    clock.now = 10.0
    clock.claims.give(RESOURCE, ["npu0-s0"])

    assert clock.claims.held() == {RESOURCE: {"npu0-s0"}}
    assert not clock.claims.informed
    assert clock.answered(9.0, "npu0-s1") == {"npu0-s0", "npu0-s1"}
    assert clock.claims.informed


def test_listed_identifier_follows_the_kubelet() -> None:
    """Once listed it is in use exactly as long as the kubelet lists it."""
    clock = Clock()
    clock.claims.give(RESOURCE, ["npu0-s0"])

    assert clock.answered(5.0, "npu0-s0") == {"npu0-s0"}
    assert clock.answered(15.0) == set()


def test_unlisted_identifier_is_free_after_a_minute_and_an_answer() -> None:
    """A Pod that was never started holds nothing; a silent kubelet proves nothing."""
    clock = Clock()
    clock.claims.give(RESOURCE, ["npu0-s0"])

    assert clock.answered(59.0) == {"npu0-s0"}
    clock.now = 300.0
    assert clock.claims.held() == {RESOURCE: {"npu0-s0"}}
    assert clock.answered(60.0) == set()


def test_identifier_given_again_starts_over() -> None:
    """The last Allocate counts."""
    clock = Clock()
    clock.claims.give(RESOURCE, ["npu0-s0"])
    clock.now = 50.0
    clock.claims.give(RESOURCE, ["npu0-s0"])

    assert clock.answered(70.0) == {"npu0-s0"}


def test_restarted_kubelet_does_not_free_what_it_forgot_to_tell() -> None:
    """Its first answers name no Pod; what was in use stays so until they do, or for a minute."""
    clock = Clock()
    clock.answered(10.0, "npu0-s0", "npu0-s1")
    # The first answer of the new kubelet comes before its start is noticed.
    assert clock.answered(20.0) == set()

    clock.claims.keep()

    assert clock.answered(21.0) == {"npu0-s0", "npu0-s1"}
    assert clock.answered(25.0, "npu0-s0") == {"npu0-s0", "npu0-s1"}
    assert clock.answered(35.0) == {"npu0-s1"}
    assert clock.answered(81.0) == set()


def test_what_ended_long_before_is_not_kept() -> None:
    """Only what was in use shortly before the start can be."""
    clock = Clock()
    clock.answered(10.0, "npu0-s0")
    clock.answered(20.0)
    clock.now = 40.0

    clock.claims.keep()

    assert clock.answered(41.0) == set()

"""Leader election: one leader at any time, judged by monotonic clocks."""

import pytest

from tests.component.fake_apiserver import FakeApiServer, RefusedError, Seen
from tests.component.thermal.guard_rig import client_of
from thermal.lease import DURATION_SECONDS, LEADING_SECONDS, Elector

LEASE = "/apis/coordination.k8s.io/v1/namespaces/npu/leases/guard"


class _Contender:
    """An elector with a clock of its own."""

    def __init__(self, server: FakeApiServer, name: str, *, now: float) -> None:
        self.now = now
        self.elector = Elector(
            client_of(server),
            namespace="npu",
            name="guard",
            identity=name,
            monotonic=lambda: self.now,
        )

    def pass_time(self, seconds: float, *, stepping: bool = True) -> None:
        for _ in range(int(seconds)):
            self.now += 1.0
            if stepping:
                self.elector.step()

    @property
    def leads(self) -> bool:
        return self.elector.term is not None


@pytest.fixture
def pair(server: FakeApiServer) -> tuple[_Contender, _Contender]:
    """Two contenders whose clocks differ by an hour; the first leads."""
    first, second = _Contender(server, "a", now=10.0), _Contender(server, "b", now=3600.0)
    first.elector.step()
    second.elector.step()
    return first, second


def test_the_first_leads_and_keeps_leading(pair: tuple[_Contender, _Contender]) -> None:
    """A renewed Lease is never taken over."""
    first, second = pair
    for _ in range(60):
        first.pass_time(1)
        second.pass_time(1)
        assert (first.leads, second.leads) == (True, False)
    assert first.elector.term == 1
    assert second.elector.holder == "a"


def test_a_dead_leader_is_replaced_after_the_lease(pair: tuple[_Contender, _Contender]) -> None:
    """The successor waits for the whole duration; by then the old one has stopped by itself."""
    first, second = pair
    for second_passed in range(1, 40):
        first.pass_time(1, stepping=False)
        second.pass_time(1)
        assert not (first.leads and second.leads), second_passed
        if second_passed < DURATION_SECONDS:
            assert not second.leads
    assert second.leads


def test_a_leader_that_cannot_renew_stops_before_others_start(
    server: FakeApiServer, pair: tuple[_Contender, _Contender]
) -> None:
    """With the API server away for one contender only, there are never two leaders."""
    first, second = pair

    def only_for_a(seen: Seen) -> None:
        if seen.method == "PATCH" and (seen.body or {})["spec"].get("holderIdentity") == "a":
            raise RefusedError(503, "away")

    server.refuse = only_for_a
    for _ in range(40):
        first.pass_time(1)
        second.pass_time(1)
        assert not (first.leads and second.leads)
    assert second.leads
    assert LEADING_SECONDS < DURATION_SECONDS


def test_release_lets_the_other_lead_at_once(pair: tuple[_Contender, _Contender]) -> None:
    """An orderly stop costs no waiting, and a released elector never contends again."""
    first, second = pair

    first.elector.release()
    second.pass_time(1)
    first.pass_time(60)

    assert (first.leads, second.leads) == (False, True)


def test_a_restarted_container_continues(server: FakeApiServer) -> None:
    """The same Pod name leads again without waiting."""
    _Contender(server, "a", now=0.0).elector.step()

    again = _Contender(server, "a", now=0.0)
    again.elector.step()

    assert again.leads
    assert server.object(LEASE)["spec"]["leaseTransitions"] == 1


def test_two_that_acquire_at_once_end_with_one(server: FakeApiServer) -> None:
    """The version decides: the slower of two writers gets a conflict."""
    first, second = _Contender(server, "a", now=0.0), _Contender(server, "b", now=0.0)
    nested: list[bool] = []

    def other_first(seen: Seen) -> None:
        if not nested and seen.path == LEASE:
            nested.append(True)
            second.elector.step()

    server.between = other_first
    first.elector.step()

    assert (first.leads, second.leads) == (False, True)


def test_terms_are_counted(pair: tuple[_Contender, _Contender]) -> None:
    """Losing and winning again is another term, so that nothing of the old one is used."""
    first, _ = pair
    first.pass_time(LEADING_SECONDS + 1, stepping=False)
    assert not first.leads

    first.pass_time(1)

    assert first.elector.term == 2

"""The self-test tells a fenced token from one that could do anything."""

import pytest

from tests.component.fake_apiserver import FakeApiServer, RefusedError, Seen
from tests.component.thermal.guard_rig import client_of
from thermal.selftest import SelfTest, probe

POLICY = "nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'x' with binding 'x' denied request"


@pytest.mark.parametrize(
    ("code", "message", "outcome"),
    [
        (403, POLICY, "enforced"),
        (403, "User cannot patch resource nodes", "unknown"),
        (503, "away", "unknown"),
        (None, "", "missing"),
    ],
)
def test_only_a_refusal_by_policy_counts(
    server: FakeApiServer, code: int | None, message: str, outcome: str
) -> None:
    """RBAC refusals and failures prove nothing; success is the bad news. Nothing is stored."""

    def refuse(seen: Seen) -> None:
        if seen.method == "PATCH" and code is not None:
            raise RefusedError(code, message)

    server.refuse = refuse
    before = server.node("n1")

    assert probe(client_of(server), "n1") == outcome
    assert server.node("n1") == before
    assert all(seen.query == {"dryRun": "All"} for seen in server.requests[1:])


def test_it_runs_on_the_leader_after_some_seconds_and_again(server: FakeApiServer) -> None:
    """A policy needs seconds to become active; a missing one is looked for every minute."""
    clock = [0.0]
    leads = [False]
    outcomes: list[str] = []
    test = SelfTest(
        client_of(server),
        nodes=lambda: {"n1": object()},
        leads=lambda: leads[0],
        tell=outcomes.append,
        monotonic=lambda: clock[0],
    )

    def run(seconds: int) -> None:
        for _ in range(seconds):
            clock[0] += 1
            test.step()

    run(60)
    leads[0] = True
    run(19)
    assert outcomes == []
    run(70)
    assert outcomes == ["missing", "missing"]

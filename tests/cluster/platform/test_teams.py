"""Shares of teams on a real API server: who is refused, and with which words."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
import yaml

from ci.command import CommandError
from ci.demo.story import RESOURCE, sample_pod
from ci.kube import Json, until
from tests.cluster.platform.installed import Platform, npu_pod, why_pending, without_npu

pytestmark = [pytest.mark.cluster]

TEAM: Final = "team-a"
OTHER: Final = "team-b"


def share(npus: int, **settings: object) -> list[Json]:
    """Return the list of quotas with one team, whose namespace comes with it."""
    return [
        {
            "namespace": TEAM,
            "createNamespace": True,
            "hard": {f"requests.{RESOURCE}": npus},
            **settings,
        }
    ]


def upgrade(platform: Platform, **values: object) -> None:
    """Change values of the release."""
    platform.change(*(f"--set-json={key}={json.dumps(value)}" for key, value in values.items()))


@pytest.fixture(scope="module")
def teams(platform: Platform) -> Iterator[Platform]:
    """The platform with a share of one NPU for a team; the namespaces go at the end."""
    platform.kube.kubectl("create", "namespace", OTHER)
    upgrade(platform, quotas=share(1))
    yield platform
    upgrade(platform, quotas=[], quotasRequired={"enabled": False})
    platform.kube.delete("namespace", TEAM, OTHER, "--wait=false")
    platform.accepts(sample_pod(name="asks"))


def create(platform: Platform, pod: Json, namespace: str = TEAM) -> None:
    """Create a Pod once its namespace has its account."""
    platform.kube.kubectl("create", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(pod))


def used(platform: Platform) -> str | None:
    """Return how many NPUs of its share the team uses."""
    quota = platform.kube.get("resourcequota", "npu", "-n", TEAM)
    number: str | None = quota.get("status", {}).get("used", {}).get(f"requests.{RESOURCE}")
    return number


def test_a_share_is_a_limit(teams: Platform) -> None:
    """One over is refused by name of the quota; release frees; an upgrade changes a live share."""
    kube = teams.kube
    until(lambda: used(teams), lambda seen: seen == "0", seconds=30, what="the share is counted")

    create(teams, without_npu(sample_pod(name="plain")))
    plain = kube.get("pod", "plain", "-n", TEAM)
    assert plain["spec"]["containers"][0]["resources"] == {}, "none is not the same as 0"
    until(
        lambda: kube.get("pod", "plain", "-n", TEAM)["status"]["phase"],
        lambda phase: phase in ("Running", "Succeeded", "Failed"),
        seconds=60,
        what="the Pod without NPU starts",
    )

    create(teams, sample_pod(name="first"))
    with pytest.raises(CommandError) as refused:
        create(teams, sample_pod(name="second"))
    assert "exceeded quota: npu" in str(refused.value)
    assert f"requested: requests.{RESOURCE}=1, used: requests.{RESOURCE}=1" in str(refused.value)

    kube.delete("pod", "first", "-n", TEAM, "--grace-period=1")
    until(lambda: used(teams), lambda seen: seen == "0", seconds=30, what="the share is free again")
    create(teams, sample_pod(name="second"))

    upgrade(teams, quotas=share(2))
    create(teams, sample_pod(name="third"))
    assert used(teams) == "2"
    kube.delete("pod", "second", "third", "-n", TEAM, "--grace-period=1")


@contextmanager
def broken(platform: Platform, node: str) -> Iterator[None]:
    """Take the device nodes from the board of ``node``, whose NPU is then unhealthy."""
    paths = sorted((platform.cluster.node_board(node) / "dev/dri").glob("*[0-9]"))
    kept = [(path, path.stat()) for path in paths]
    assert kept
    for path, _ in kept:
        path.unlink()
    try:
        until(
            lambda: platform.kube.allocatable(RESOURCE)[node],
            lambda offered: offered == "0",
            seconds=120,
            what=f"no NPU offered on {node}",
        )
        yield
    finally:
        for path, status in kept:
            os.mknod(path, status.st_mode, status.st_rdev)
        # It must look well for a minute, and is looked at every half minute.
        until(
            lambda: platform.kube.allocatable(RESOURCE)[node],
            lambda offered: offered == "1",
            seconds=200,
            what=f"the NPU of {node} is offered again",
        )


def _pinned(name: str, node: str) -> Json:
    """Return a Pod of the team's that needs no NPU and runs on ``node`` only."""
    return without_npu(npu_pod(name, node))


def _state(platform: Platform, name: str) -> tuple[str, str]:
    """Return phase and message of a Pod of the team's."""
    status = platform.kube.get("pod", name, "-n", TEAM)["status"]
    return status["phase"], status.get("message", "")


@pytest.mark.timeout(600)
def test_a_broken_npu_keeps_nobody_else_away(teams: Platform) -> None:
    """Pods of the team without an NPU start beside a broken one, unless they have a LimitRange.

    An upgrade that leaves it out takes it away.
    """
    kube, node = teams.kube, teams.boards[1]
    greedy = sample_pod(name="greedy")
    greedy["spec"]["containers"][0]["resources"] = {"limits": {RESOURCE: 2}}
    upgrade(teams, quotas=share(2, limitRange=True))
    with pytest.raises(CommandError, match=f"maximum {RESOURCE} usage per Container is 1"):
        create(teams, greedy)
    with broken(teams, node):
        create(teams, _pinned("limited", node))
        until(
            lambda: _state(teams, "limited"),
            lambda seen: seen[0] == "Failed" and "no healthy devices present" in seen[1],
            seconds=60,
            what="a Pod that was given 0 NPUs is turned away",
        )

        upgrade(teams, quotas=share(2))
        assert kube.items("limitranges", "-n", TEAM) == []
        create(teams, _pinned("unlimited", node))
        until(
            lambda: _state(teams, "unlimited")[0],
            lambda phase: phase == "Running",
            seconds=60,
            what="a Pod that asks for nothing runs",
        )
    create(teams, greedy)
    until(
        lambda: why_pending(kube.get("pod", "greedy", "-n", TEAM)),
        lambda said: f"Insufficient {RESOURCE}" in said,
        seconds=30,
        what="one that asks for more than a board has waits",
    )
    assert used(teams) == "2", "and is counted"
    kube.delete("pod", "greedy", "limited", "unlimited", "-n", TEAM, "--grace-period=1")


def test_a_share_can_be_required(teams: Platform) -> None:
    """Without one the answer says whom to ask; a Pod without NPU and an own quota pass."""
    upgrade(
        teams,
        quotasRequired={"enabled": True, "contact": "ask edge@example.com", "extraResources": []},
    )
    until(
        lambda: _refusal(teams, OTHER),
        lambda seen: "namespace team-b has no NPU quota; ask edge@example.com" in seen,
        seconds=30,
        what="the policy is in force",
    )
    create(teams, without_npu(sample_pod(name="plain")), OTHER)
    teams.kube.kubectl("create", "-n", TEAM, "--dry-run=server", "-f", "-", stdin=_npu("held"))
    teams.kube.kubectl("label", "namespace", OTHER, "npu-platform.io/quota=own")
    until(lambda: _refusal(teams, OTHER), lambda seen: not seen, seconds=30, what="let through")

    policy = next(
        item
        for item in teams.kube.items("validatingadmissionpolicies")
        if item["metadata"]["name"].endswith("quotas-required")
    )
    assert policy["status"]["typeChecking"] == {}

    upgrade(teams, quotas=[])
    assert teams.kube.items("resourcequotas", "-n", TEAM) == []
    until(lambda: _refusal(teams, TEAM), bool, seconds=30, what="a team that left is refused")
    assert teams.kube.get("namespace", TEAM), "its namespace stays"


def _npu(name: str) -> str:
    return yaml.safe_dump(sample_pod(name=name))


def _refusal(platform: Platform, namespace: str) -> str:
    """Return why a Pod with an NPU is refused in a namespace, empty if it is not."""
    try:
        platform.kube.kubectl(
            "create", "-n", namespace, "--dry-run=server", "-f", "-", stdin=_npu("asks")
        )
    except CommandError as error:
        return str(error)
    return ""

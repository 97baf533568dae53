"""Mode ``dra`` without a guard for ten minutes: what stays, what new Pods do, what comes after."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pytest

from ci.kube import Json, until
from tests.cluster.platform.installed import COOL, HOT, Platform, events, npu_pod
from tests.cluster.platform.modes import SELECTOR, Mode
from tests.cluster.platform.outages import rest, restarts

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1500)]

AWAY_SECONDS: Final = 600.0
#: From the order for two guards to the rule of a board that heated meanwhile: their start, three
#: readings (10 s), the debounce (4 s here), and as much again.
GATE_SECONDS: Final = 60.0
SLOTS: Final = 3


@pytest.fixture
def mode(platform: Platform) -> Iterator[Mode]:
    """The platform in mode ``dra``, some slots on each board."""
    one = Mode("dra", platform)
    one.install(f"plugin.sharing.slots={SLOTS}", "plugin.dra.readClaims=true")
    for node in platform.boards:
        platform.hold(node, COOL)
    one.offers(SLOTS)
    yield one
    for node in platform.boards:
        platform.release(node)
    Mode("devicePlugin", platform).install()


def _rules(platform: Platform) -> dict[str, str]:
    """Return the effect of the rule for each node that has one."""
    return {
        item["spec"]["deviceSelector"]["pool"]: item["spec"]["taint"]["effect"]
        for item in platform.kube.items("devicetaintrules", "-l", SELECTOR)
    }


def _specified(platform: Platform) -> dict[str, tuple[str, int]]:
    """Return slices and rules with their UIDs and the number of changes to what they say."""
    return {
        f"{kind} {item['metadata']['name']}": (
            item["metadata"]["uid"],
            item["metadata"]["generation"],
        )
        for kind in ("resourceslices", "devicetaintrules")
        for item in platform.kube.items(kind, "-l", SELECTOR)
    }


def _of_default(platform: Platform, *names: str) -> list[Json]:
    pods = [platform.kube.get("pod", name, "-n", "default") for name in names]
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}
    return pods


def test_ten_minutes_without_a_guard(mode: Mode, measure: Callable[[str], None]) -> None:
    """Slices and rules stay as they were, so the scheduler goes by the heat of ten minutes ago."""
    platform, (closed, open_) = mode.platform, mode.platform.boards
    platform.hold(closed, HOT)
    until(
        lambda: _rules(platform),
        lambda rules: rules == {closed: "NoSchedule"},
        seconds=90,
        what=f"a rule for {closed}",
    )
    with platform.pod(npu_pod("npu-holder", open_)) as holder:
        platform.scale_guards(0)
        try:
            began = time.monotonic()
            said = _specified(platform)
            platform.hold(open_, HOT)
            platform.hold(closed, COOL)
            rest(began, AWAY_SECONDS / 2)
            # Nobody says that this board is hot by now: it takes new work.
            with (
                platform.pod(npu_pod("npu-late", open_)) as late,
                platform.pod(npu_pod("npu-waits", closed), phase="Pending"),
            ):
                events(platform, "npu-late")
                # And nobody that the other one has cooled down.
                assert mode.waits_because in platform.scheduler_says("npu-waits")
                rest(began, AWAY_SECONDS)
                assert _specified(platform) == said
                _returns(mode, measure)
                pods = _of_default(platform, "npu-holder", "npu-late")
                assert restarts(pods) == restarts([holder, late])
        finally:
            platform.scale_guards(2)
            for node in platform.boards:
                platform.hold(node, COOL)
    until(partial(_rules, platform), lambda rules: not rules, seconds=120, what="no rule")


def _returns(mode: Mode, measure: Callable[[str], None]) -> None:
    """Bring the guards back: the board that is hot is closed, the one that is cool opened."""
    platform, (closed, open_) = mode.platform, mode.platform.boards
    began = time.monotonic()
    platform.scale_guards(2)
    until(
        lambda: _rules(platform).get(open_),
        lambda effect: effect in ("NoSchedule", "None"),
        seconds=GATE_SECONDS,
        what=f"a rule for {open_}",
    )
    measure(
        f"dra, ten minutes without guard: rule {time.monotonic() - began:.0f} s after its order"
    )
    platform.await_phase("npu-waits", "Running", seconds=120)
    measure(f"dra, the cool board takes Pods {time.monotonic() - began:.0f} s after it")
    # The budget allows one closed board of two; the hotter one takes the place of the other.
    until(
        lambda: _rules(platform),
        lambda rules: rules == {open_: "NoSchedule"},
        seconds=60,
        what=f"{open_} closed, {closed} open",
    )
    # It has a share that nobody holds, and gives it to nobody.
    with platform.pod(npu_pod("npu-next", open_), phase="Pending"):
        assert mode.waits_because in platform.scheduler_says("npu-next")

"""Ten minutes without an API server: boards look after themselves, and the guard catches up."""

import json
import time
import urllib.error
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ci.demo.story import NAMESPACE, RESOURCE
from ci.kube import Json, until
from tests.cluster.platform.installed import COMPONENT, COOL, HOT, Platform, npu_pod
from tests.cluster.platform.outages import (
    answers,
    leads_no_more,
    patiently,
    rest,
    restarts,
    says,
    silent_api_server,
)

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1500)]

FOREIGN: Final = "example.com/maintenance"
SLOTS: Final = 3
#: When the hanging server ends, and when another one is started.
HANGS_SECONDS: Final = 300.0
AWAY_SECONDS: Final = 600.0
#: From the first answer to the taint of a node that heated meanwhile: a turn of the lease with its
#: time limits (7 s), three readings (10 s), the debounce (4 s here), and as much again because
#: everybody comes back at once.
GATE_SECONDS: Final = 45.0


@pytest.fixture
def shared(cool: Platform) -> Iterator[Platform]:
    """Boards in slots: what a board does about its heat by itself shows before it is critical."""
    cool.change(f"--set=plugin.sharing.slots={SLOTS}")
    try:
        cool.offers(str(SLOTS))
        yield cool
    finally:
        for node in cool.boards:
            cool.hold(node, COOL)
        cool.change("--set=plugin.sharing.slots=1")
        cool.offers_whole()


def _everybody(platform: Platform) -> list[Json]:
    return platform.kube.items("pods", "-n", NAMESPACE)


def _of(pods: list[Json], component: str) -> list[Json]:
    return [pod for pod in pods if pod["metadata"]["labels"].get(COMPONENT) == component]


def _foreign(platform: Platform, node: str) -> str:
    """Return the taints of others that tests put there, as the API server has them."""
    taints = platform.kube.node(node)["spec"].get("taints", [])
    return json.dumps([taint for taint in taints if taint["key"] == FOREIGN])


def _slots(plugin: Json, state: str) -> int:
    """Return how many slots a plugin says are in a state."""
    devices = json.loads(says(plugin, "/allocations"))["devices"]
    return sum(one["state"] == state for one in devices)


def _not_ready(pod: Json) -> bool:
    try:
        says(pod, "/readyz")
    except urllib.error.HTTPError as error:
        return error.code == 503
    return False


def _failed_requests(guard: Json) -> float:
    return sum(
        sample.value
        for family in text_string_to_metric_families(says(guard, "/metrics"))
        for sample in family.samples
        if sample.name == "npu_thermal_guard_api_errors_total"
    )


def _ready(platform: Platform, node: str) -> bool:
    conditions = platform.kube.node(node)["status"]["conditions"]
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def test_ten_minutes_without_an_api_server(
    shared: Platform, measure: Callable[[str], None]
) -> None:
    """It hangs for five minutes and is gone for five more; nothing restarts, nothing is lost."""
    first, second = shared.boards
    for node in shared.boards:
        shared.kube.kubectl("taint", "node", node, f"{FOREIGN}=yes:PreferNoSchedule")
    try:
        shared.hold(first, HOT)
        shared.await_hot(first, hot=True, seconds=60)
        with shared.pod(npu_pod("npu-holder", second)) as holder:
            closed = shared.hot_taint(first)
            foreign = {node: _foreign(shared, node) for node in shared.boards}
            before = _everybody(shared)
            _live_without(shared, before, second, measure)
            answered = time.monotonic()

            shared.await_hot(second, hot=True, seconds=GATE_SECONDS)
            took = time.monotonic() - answered
            measure(f"ten minutes without API server: closed {took:.0f} s after its first answer")
            assert shared.hot_taint(first) == closed
            for node in shared.boards:
                until(partial(_ready, shared, node), seconds=60, what=f"{node} Ready")
            until(
                lambda: shared.kube.allocatable(RESOURCE)[second],
                lambda offered: offered == "1",
                seconds=60,
                what="the kubelet tells what the plugin withdrew",
            )
            assert {node: _foreign(shared, node) for node in shared.boards} == foreign
            assert restarts(_everybody(shared)) == restarts(before)
            after = shared.kube.get("pod", "npu-holder", "-n", "default")
            assert restarts([after]) == restarts([holder])
            assert after["status"]["phase"] == "Running"
        for node in shared.boards:
            shared.hold(node, COOL)
        for node in shared.boards:
            shared.await_hot(node, hot=False, seconds=90)
        assert {node: _foreign(shared, node) for node in shared.boards} == foreign
    finally:
        for node in shared.boards:
            shared.kube.kubectl("taint", "node", node, f"{FOREIGN}-")


def _live_without(
    platform: Platform, pods: list[Json], node: str, measure: Callable[[str], None]
) -> None:
    """Heat ``node``, on which one slot is held, while no API server answers for ten minutes."""
    guards = _of(pods, "guard")
    (plugin,) = (pod for pod in _of(pods, "plugin") if pod["spec"]["nodeName"] == node)
    (exporter,) = (pod for pod in _of(pods, "exporter") if pod["spec"]["nodeName"] == node)
    failed = {guard["metadata"]["uid"]: _failed_requests(guard) for guard in guards}
    with silent_api_server(platform.cluster) as end:
        began = time.monotonic()
        platform.hold(node, HOT)
        for guard in guards:
            name = guard["metadata"]["name"]
            patiently(partial(leads_no_more, guard), seconds=40, what=f"{name} leads no more")
        # The local step: what is free goes, what is held stays.
        patiently(
            lambda: _slots(plugin, "withdrawn") == SLOTS - 1,
            seconds=60,
            what=f"free slots of {node} withdrawn by its plugin",
        )
        measure(f"free slots withdrawn {time.monotonic() - began:.0f} s after the board got hot")
        rest(began, HANGS_SECONDS)
        end()
        rest(began, AWAY_SECONDS)
        assert _slots(plugin, "withdrawn") == SLOTS - 1
        assert "npu_temperature_celsius{" in says(exporter, "/metrics")
        for guard in guards:
            assert says(guard, "/healthz").strip() == "ok"
            assert _not_ready(guard)
            assert leads_no_more(guard)
            asked = _failed_requests(guard) - failed[guard["metadata"]["uid"]]
            measure(f"requests of a guard that failed in ten minutes: {asked:.0f}")
            assert asked < AWAY_SECONDS, "more than one request a second to a server that is away"
    until(lambda: answers(platform), seconds=60, what="the API server's answers")

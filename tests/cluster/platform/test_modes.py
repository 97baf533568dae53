"""What users see is the same in both modes, but for what :class:`Mode` lists."""

import json
import operator
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pytest

from ci.command import CommandError
from ci.dashboards import promql
from ci.demo.story import NAMESPACE, RESOURCE
from ci.kube import Json, until
from ci.prometheus import Prometheus
from tests.cluster.platform.installed import (
    COOL,
    HOT,
    NpuCommand,
    Platform,
    events,
    npu_pod,
    without_npu,
)
from tests.cluster.platform.modes import DRIVER, SELECTOR, Mode
from tests.cluster.platform.power_cuts import allocated_id, running, workloads
from tests.cluster.platform.test_dashboards import OPENED, STEP, queries, rules

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

SLOTS: Final = 4
#: What dashboards show in one mode only, with the reason.
ONE_MODE_ONLY: Final[dict[str, str]] = {}
#: So long after the first scrape every window of a query is full of samples.
FILLED_SECONDS: Final = 40.0
#: The two records that a bill is made of.
BILLED: Final = (
    "sum_over_time(namespace:npu_device_allocation:sum[1h:1m])"
    " and on (namespace) sum_over_time(namespace:npu_held_cores:sum[1h:1m])"
)


@pytest.fixture(scope="module", params=["devicePlugin", "dra"])
def mode(platform: Platform, request: pytest.FixtureRequest) -> Iterator[Mode]:
    """The platform in each mode, one whole NPU per board."""
    one = Mode(request.param, platform)
    one.install()
    one.offers()
    yield one
    Mode("devicePlugin", platform).install()


@pytest.fixture
def cool_boards(mode: Mode) -> Iterator[None]:
    """All boards cool and open, and not heated by the load of a test that is not about heat."""
    mode.platform.cool(load=(0.0, 0.0, 0.0))
    yield
    for node in mode.platform.boards:
        mode.platform.release(node)


@pytest.fixture(scope="module")
def shown() -> dict[str, set[str]]:
    """Queries with data, by mode; filled by the tests of both."""
    return {}


def test_pod_asks_in_the_same_words_and_gets_the_same(mode: Mode) -> None:
    """Device, environment, exclusive use, quota, attribution, holder; all from one manifest."""
    platform, node = mode.platform, mode.platform.boards[0]
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "modes", "namespace": "default"},
        "spec": {"hard": {f"requests.{RESOURCE}": "2"}},
    }
    platform.kube.apply(quota)
    try:
        with platform.pod(npu_pod("npu-first", node)):
            report = events(platform, "npu-first", seconds=30)
            variables = next(e["variables"] for e in report if e["event"] == "environment")
            opened = {e["path"]: e["opened"] for e in report if e["event"] == "device"}
            assert variables["RKNN_NPU_DEVICE"] == "/dev/dri/card1"
            assert variables["NPU_DEVICE_IDS"] == "npu0"
            assert variables["NPU_CORE_HINT"] == "0,1,2"
            assert opened == {"/dev/dri/card1": True, "/dev/dri/renderD129": True}
            used = until(
                lambda: platform.kube.get("quota", "modes", "-n", "default")["status"]["used"],
                lambda seen: seen[f"requests.{RESOURCE}"] == "1",
                seconds=30,
                what="use of the quota",
            )
            assert used == {f"requests.{RESOURCE}": "1"}
            with platform.pod(npu_pod("npu-second", node), phase="Pending"):
                assert mode.waits_because in platform.scheduler_says("npu-second")
            until(
                lambda: platform.value(
                    node, "npu_device_allocation_info", pod="npu-first", resource=mode.holds_by
                ),
                lambda value: value == 1,
                seconds=30,
                what="the exporter names the Pod",
            )
            page = until(
                partial(platform.allocations, node),
                lambda seen: seen["devices"][0].get("holder") is not None,
                seconds=40,
                what="the plugin names the Pod",
            )
            assert page["devices"][0]["holder"]["pod"] == "npu-first"
            assert page["devices"][0]["resource"] == RESOURCE
    finally:
        platform.kube.delete("quota", "modes", "-n", "default")


def test_command_line_says_the_same(mode: Mode, capsys: pytest.CaptureFixture[str]) -> None:
    """Who has the NPU, what the node offers, why the next Pod waits, and no complaint."""
    platform, node = mode.platform, mode.platform.boards[0]
    command = NpuCommand(platform, capsys)
    with platform.pod(npu_pod("npu-first", node)):
        row = until(
            lambda: next(r for r in command.items("who") if r["pod"] == "npu-first"),
            lambda seen: bool(seen["devices"]),
            seconds=40,
            what="who names the device",
        )
        assert (row["node"], row["devices"], row["asked"]) == (node, ["npu0"], f"1 {RESOURCE}")
        (offer,) = command.items("why", node)
        assert f"{RESOURCE} capacity 1, allocatable 1, free 0" in offer["text"]
        with platform.pod(npu_pod("npu-second", node), phase="Pending"):
            (cause, *_) = command.items("why", "default/npu-second")
            assert cause["check"] == "no capacity"
            assert "held by default/npu-first" in cause["text"]
        assert "fail" not in {item["level"] for item in command.items("doctor")}


def test_claims_count_as_limits_do(mode: Mode) -> None:
    """A team cannot get around its share, or the need for one, by a claim of its own."""
    if not mode.claims:
        return
    kube = mode.platform.kube
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "npu-own", "namespace": "default"},
        "spec": {
            "devices": {
                "requests": [{"name": "npu", "exactly": {"deviceClassName": "npu.rockchip.com"}}]
            }
        },
    }
    create = ("create", "--dry-run=server", "-f", "-")

    def refusal() -> str:
        try:
            kube.kubectl(*create, stdin=json.dumps(claim))
        except CommandError as error:
            return str(error)
        return ""

    assert refusal() == ""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "modes", "namespace": "default"},
        "spec": {"hard": {f"requests.{RESOURCE}": "0"}},
    }
    try:
        kube.apply(quota)
        until(
            refusal,
            lambda said: "exceeded quota: modes" in said,
            seconds=30,
            what="refusal by the quota",
        )
        kube.delete("quota", "modes", "-n", "default")
        mode.install("quotasRequired.enabled=true", "quotasRequired.contact=ask the edge team")
        until(
            refusal,
            lambda said: "namespace default has no NPU quota; ask the edge team" in said,
            seconds=30,
            what="refusal for want of a share",
        )
        (policy,) = (
            item
            for item in kube.items("validatingadmissionpolicies")
            if item["metadata"]["name"].endswith("quotas-required-claims")
        )
        assert policy["status"]["typeChecking"] == {}
    finally:
        kube.delete("quota", "modes", "-n", "default", "--ignore-not-found")
        mode.install()
        mode.platform.accepts(claim, npu_pod("npu-asks"))


def _await_successor(platform: Platform, node: str, processes: list[str]) -> None:
    """Wait until another plugin serves: until the kubelet looks, node status is of the old one."""

    def serves() -> bool:
        try:
            now = platform.processes(node, "plugin")
        except LookupError:
            return False
        plugin = platform.component("plugin", node)
        return not {*processes} & {*now} and bool(platform.kube.pod_http(plugin, "/readyz"))

    until(serves, seconds=90, what=f"another plugin on {node}")


@pytest.mark.parametrize("what", ["kubelet", "plugin killed", "plugin Pod deleted"])
def test_restarts_lose_neither_pod_nor_device(
    mode: Mode, what: str, measure: Callable[[str], None]
) -> None:
    """The Pod runs on, the NPU is offered again, and the next Pod gets it."""
    platform, node = mode.platform, mode.platform.boards[0]
    with platform.pod(npu_pod("npu-holder", node)) as before:
        start = time.monotonic()
        pod, processes = platform.component("plugin", node), platform.processes(node, "plugin")
        if what == "kubelet":
            platform.cluster.restart("kubelet", node)
            # Its slices are gone with it.
            time.sleep(1)
        elif what == "plugin killed":
            platform.cluster.exec(node, ["kill", "-9", *processes])
            _await_successor(platform, node, processes)
        else:
            name = pod["metadata"]["name"]
            platform.kube.kubectl("delete", "pod", name, "-n", NAMESPACE, "--wait=false")
            _await_successor(platform, node, processes)
        mode.offers()
        measure(f"{mode.name}, {what}: offered again after {time.monotonic() - start:.1f} s")
        after = platform.kube.get("pod", "npu-holder", "-n", "default")
    assert after["status"]["phase"] == "Running"
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert [s["restartCount"] for s in after["status"]["containerStatuses"]] == [0]
    with platform.pod(npu_pod("npu-next", node)):
        events(platform, "npu-next", seconds=30)


def test_dashboards_and_records_show_the_same(
    mode: Mode, shown: dict[str, set[str]], measure: Callable[[str], None]
) -> None:
    """A busy NPU with its Pod and a hot one: what one mode fills, the other fills as well."""
    platform, (busy, hot) = mode.platform, mode.platform.boards
    server = Prometheus.beside(platform.cluster)
    # Its load alone would heat it, too.
    platform.hold(busy, COOL)
    with platform.pod(npu_pod("npu-shown", busy)):
        platform.hold(hot, HOT)
        try:
            began = time.time()
            server.start(
                platform.kube.items("pods", "-n", NAMESPACE), scrape_seconds=2.0, rules=rules()
            )
            share = 'node_device_namespace_pod:npu_device_allocation:share{pod="npu-shown"}'
            for query, expected in (
                (share, 1.0),
                # A whole NPU is withdrawn at critical only; until then the taint keeps Pods away.
                ('sum(npu_device_plugin_slots{state="healthy"})', 2.0),
                ("sum(npu_device_plugin_allocated)", 1.0),
                ("sum(npu_thermal_guard_taint_active)", 1.0),
                ('namespace:npu_held_cores:sum{namespace="default"}', 3.0),
            ):
                until(
                    partial(server.value, query),
                    partial(operator.eq, expected),
                    seconds=120,
                    what=f"{query} = {expected} in mode {mode.name}",
                )
            until(
                partial(
                    server.value, 'namespace_pod:npu_pod_core_busy_seconds:rate1m{pod="npu-shown"}'
                ),
                lambda value: value is not None and value > 0.5,
                seconds=60,
                what="busy cores of the Pod",
            )
            # A bill counts whole minutes of the clock: one must have ended.
            until(
                partial(server.query, BILLED),
                seconds=90,
                what="a minute that can be charged for",
            )
            time.sleep(max(0.0, began + FILLED_SECONDS - time.time()))
            shown[mode.name] = _with_data(server, began)
        finally:
            server.stop()
            platform.hold(hot, COOL)
            until(
                lambda: (
                    platform.hot_taint(hot) is None and not platform.kube.items("devicetaintrules")
                ),
                seconds=150,
                what=f"release of {hot}",
            )
            for node in platform.boards:
                platform.release(node)
    measure(f"{mode.name}: {len(shown[mode.name])} queries of dashboards have data")
    if len(shown) == 2:
        one, other = shown.values()
        assert one ^ other == set(ONE_MODE_ONLY)


def _with_data(server: Prometheus, began: float) -> set[str]:
    """Return the queries of dashboards that have, or had since ``began``, a result."""
    found = set()
    for place, text, instant in queries():
        query = promql.replaced(text, dict.fromkeys(promql.variables(text), ".*") | OPENED)
        if server.query(query) if instant else server.query_range(query, since=began, step=STEP):
            found.add(place)
    return found


@pytest.mark.usefixtures("cool_boards")
def test_power_cut(mode: Mode, measure: Callable[[str], None]) -> None:
    """Who runs again on a board that lost its power, and after how many seconds."""
    platform, node = mode.platform, mode.platform.boards[1]
    mode.install(f"plugin.sharing.slots={SLOTS}", "plugin.dra.readClaims=true")
    mode.offers(SLOTS)
    names = ("deployment", "statefulset", "job", "pod")
    items = workloads(node)
    platform.kube.apply(*items)
    try:
        before = {
            name: until(partial(running, platform, name), seconds=120, what=f"cut-{name} runs")
            for name in names
        }
        ids = {
            pod["metadata"]["name"]: allocated_id(platform, pod["metadata"]["name"])
            for pods in before.values()
            for pod in pods.values()
        }
        assert sorted(ids.values()) == [f"npu0-s{number}" for number in range(SLOTS)]
        platform.cluster.stop_node(node)
        time.sleep(3)
        platform.cluster.start_node(node)
        start = time.monotonic()
        for name in names:
            _await_again(mode, name, before[name], start, measure)
    finally:
        for item in items:
            kind, full = item["kind"], item["metadata"]["name"]
            platform.kube.delete(
                kind, full, "-n", "default", "--grace-period=1", "--ignore-not-found"
            )
        mode.install()
        mode.offers()


def _await_again(
    mode: Mode,
    name: str,
    before: dict[tuple[str, int], Json],
    start: float,
    measure: Callable[[str], None],
) -> None:
    platform = mode.platform
    if name == "pod" and not mode.bare_pod_survives_power_cut:
        pod = until(
            lambda: platform.kube.get("pod", "cut-pod", "-n", "default")["status"],
            lambda status: status.get("phase") == "Failed",
            seconds=120,
            what="failure of the bare Pod",
        )
        measure(f"power cut, {mode.name}, bare pod: failed for good ({pod.get('reason')})")
        return
    again = until(
        lambda: {key: pod for key, pod in running(platform, name).items() if key not in before},
        seconds=150,
        what=f"cut-{name} runs again in mode {mode.name}",
    )
    same = {uid for uid, _ in before} & {uid for uid, _ in again}
    what = "same Pod" if same else "a new Pod"
    measure(f"power cut, {mode.name}, {name}: {what} after {time.monotonic() - start:.0f} s")
    assert bool(same) == mode.claims


@pytest.mark.usefixtures("cool_boards")
def test_lost_slice_and_lost_cdi_file_come_back(mode: Mode) -> None:
    """By the guard and by the driver; a mode without claims has neither."""
    if not mode.claims:
        assert mode.platform.kube.items("resourceslices", "-l", SELECTOR) == []
        return
    platform, node = mode.platform, mode.platform.boards[0]
    with platform.pod(npu_pod("npu-holder", node)):
        file = f"/var/run/cdi/npu-platform-{DRIVER}.json"
        before = platform.cluster.exec(node, ["cat", file]).stdout
        assert '"npu.rockchip.com/claim"' in before
        platform.cluster.exec(node, ["rm", file])
        platform.kube.delete("resourceslice", f"{node}-{DRIVER}")
        until(
            lambda: platform.cluster.exec(node, ["cat", file]).stdout,
            lambda text: text == before,
            seconds=30,
            what="the CDI file",
        )
        mode.offers()


def test_heat_in_every_strength_leaves_other_pods_alone(
    mode: Mode, measure: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """By claims: observed, closed, emptied; the Node has no taint and its other Pods stay."""
    if not mode.claims:
        # Taints of Nodes are what test_guard.py is about.
        return
    platform, node = mode.platform, mode.platform.boards[0]
    plain = without_npu(npu_pod("npu-plain", node))
    with platform.pod(npu_pod("npu-holder", node)), platform.pod(plain):
        mode.install("guard.mode=observe")
        platform.hold(node, 88.0)
        observed = _rule(platform, node, "None")
        verdict = until(
            lambda: [c["message"] for c in _conditions(platform, observed)],
            seconds=60,
            what="verdict of the API server",
        )
        assert "1 pod would be evicted" in verdict[0]
        assert (
            platform.kube.get("pod", "npu-holder", "-n", "default")["status"]["phase"] == "Running"
        )

        start = time.monotonic()
        mode.install("guard.mode=enforce")
        _rule(platform, node, "NoSchedule")
        measure(f"dra, heat: NoSchedule {time.monotonic() - start:.0f} s after guard.mode=enforce")
        with platform.pod(without_npu(npu_pod("npu-other", node))):
            assert platform.hot_taint(node) is None
            assert platform.kube.taints(node) == {}
        with platform.pod(npu_pod("npu-waits", node), phase="Pending"):
            assert mode.waits_because in platform.scheduler_says("npu-waits")
            (cause, *_) = NpuCommand(platform, capsys).items("why", "default/npu-waits")
            assert cause["check"] == "heat"
            assert f"{node} takes no new work, too hot" in cause["text"]
        # Critical after a while, and only then is anybody evicted.
        platform.hold(node, 101.0)
        mode.install(
            "guard.eviction.noExecute=true",
            "guard.eviction.noExecuteAfterSeconds=5",
        )
        _rule(platform, node, "NoExecute")
        until(
            lambda: [
                pod["metadata"]["name"]
                for pod in platform.kube.items("pods", "-n", "default")
                if pod["metadata"]["name"].startswith("npu-")
            ],
            lambda names: names == ["npu-plain"],
            seconds=60,
            what="eviction of the Pod with the NPU, and of no other",
        )
        platform.release(node)
        until(
            lambda: platform.kube.items("devicetaintrules"),
            lambda rules: not rules,
            seconds=120,
            what="release of the devices",
        )
    mode.install()
    mode.offers()


def _rule(platform: Platform, node: str, effect: str) -> str:
    """Wait until a rule with this effect is there for a node; return its name."""

    def names() -> list[str]:
        return [
            item["metadata"]["name"]
            for item in platform.kube.items("devicetaintrules")
            if item["spec"]["deviceSelector"]["pool"] == node
            and item["spec"]["taint"]["effect"] == effect
        ]

    return until(names, seconds=90, what=f"rule with {effect} for {node}")[0]


def _conditions(platform: Platform, rule: str) -> list[Json]:
    status = platform.kube.get("devicetaintrule", rule).get("status", {})
    return [c for c in status.get("conditions", []) if c["type"] == "EvictionInProgress"]

"""Mode ``dra`` when parts of it are away, with claims of one's own, and the move to it and back."""

import functools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest
import yaml

from ci.chart import CHART
from ci.demo.story import NAMESPACE, RELEASE, RESOURCE
from ci.kube import Json, until
from tests.cluster.platform.installed import (
    COMPONENT,
    COOL,
    HOT,
    NpuCommand,
    Platform,
    doctor_on,
    events,
    npu_pod,
)
from tests.cluster.platform.modes import DRIVER, SELECTOR, Mode

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(500)]

EXAMPLE: Final = CHART.parents[1] / "docs" / "examples" / "resource-claim.yaml"
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
PROFILE: Final = "npu-platform.io/profile"
#: After so long without its driver a kubelet deletes the slices of a node.
WIPED_SECONDS: Final = 30
#: From here on an emergency is declared, and NPU Pods are evicted by default.
EMERGENCY: Final = 103.0


@pytest.fixture(scope="module")
def claims(platform: Platform) -> Iterator[Mode]:
    """The platform in mode ``dra``, one whole NPU per board."""
    mode = Mode("dra", platform)
    mode.install()
    mode.offers()
    yield mode
    Mode("devicePlugin", platform).install()


@pytest.fixture
def mode(claims: Mode) -> Iterator[Mode]:
    """The same, boards given back afterwards."""
    yield claims
    for node in claims.platform.boards:
        claims.platform.release(node)
    claims.offers()


def _example(node: str) -> tuple[Json, Json]:
    """Return the documented template and Pod, bound to a node."""
    template, pod = yaml.safe_load_all(EXAMPLE.read_text())
    template["metadata"]["namespace"] = "default"
    pod["metadata"]["namespace"] = "default"
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return template, pod


def _slices(platform: Platform, node: str) -> list[Json]:
    items = platform.kube.items("resourceslices", "-l", SELECTOR)
    return [item for item in items if item["spec"]["nodeName"] == node]


def _unchanged(platform: Platform, before: Json) -> None:
    """Assert that a Pod has been running all the time."""
    after = platform.kube.get("pod", before["metadata"]["name"], "-n", "default")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["phase"] == "Running"
    assert [s["restartCount"] for s in after["status"]["containerStatuses"]] == [0]


def test_a_claim_selects_by_attributes_and_is_seen(
    mode: Mode, capsys: pytest.CaptureFixture[str]
) -> None:
    """The documented example runs; one that asks for more cores waits; an emergency evicts it."""
    platform, node = mode.platform, mode.platform.boards[0]
    template, pod = _example(node)
    greedy = json.loads(json.dumps(template).replace("cores >= 3", "cores >= 4"))
    greedy["metadata"]["name"] = "npu-greedy"
    waiting = json.loads(json.dumps(pod))
    waiting["metadata"]["name"] = "npu-greedy"
    waiting["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = "npu-greedy"
    platform.kube.apply(template, greedy)
    try:
        with platform.pod(pod), platform.pod(waiting, phase="Pending"):
            report = events(platform, "npu-by-claim")
            variables = next(e["variables"] for e in report if e["event"] == "environment")
            assert variables["NPU_DEVICE_IDS"] == "npu0"
            assert mode.waits_because in platform.scheduler_says("npu-greedy")
            command = NpuCommand(platform, capsys)
            (row,) = command.items("who")
            assert (row["pod"], row["node"]) == ("npu-by-claim", node)
            assert mode.waits_because in command("why", "-n", "default", "npu-greedy")

            platform.hold(node, EMERGENCY)
            until(
                lambda: platform.kube.items("pods", "-n", "default", "-l", "app=npu-by-claim"),
                lambda pods: [p["metadata"]["name"] for p in pods] == ["npu-greedy"],
                seconds=90,
                what="eviction of the Pod with a claim",
            )
            assert platform.hot_taint(node) is None
            platform.hold(node, COOL)
    finally:
        for name in (template["metadata"]["name"], "npu-greedy"):
            platform.kube.delete("resourceclaimtemplate", name, "-n", "default")


def test_helm_test_and_the_doctor_pass(mode: Mode) -> None:
    """Both look at slices and drivers: node status says nothing."""
    platform, node = mode.platform, mode.platform.boards[0]
    platform.kube.helm("test", RELEASE, f"--namespace={NAMESPACE}", seconds=300)
    content, said = doctor_on(platform, node)
    assert content, said
    assert f"serves driver {DRIVER}" in said


def test_without_a_guard_all_goes_on_but_what_a_kubelet_wiped(
    mode: Mode, measure: Callable[[str], None]
) -> None:
    """Running Pods stay, new ones start; a node whose kubelet restarts waits for a guard."""
    platform, (first, second) = mode.platform, mode.platform.boards
    with platform.pod(npu_pod("npu-holder", first)) as holder:
        platform.scale_guards(0)
        try:
            with platform.pod(npu_pod("npu-new", second)):
                events(platform, "npu-new")
            platform.cluster.restart("kubelet", second)
            until(
                lambda: _slices(platform, second),
                lambda slices: not slices,
                seconds=60,
                what="the slices that a kubelet wipes when it starts",
            )
            with platform.pod(npu_pod("npu-waits", second), phase="Pending"):
                assert mode.waits_because in platform.scheduler_says("npu-waits")
                _unchanged(platform, holder)
                start = time.monotonic()
                platform.scale_guards(2)
                platform.await_phase("npu-waits", "Running", seconds=120)
                took = time.monotonic() - start
                measure(f"dra: a waiting Pod runs {took:.0f} s after the guard came back")
        finally:
            platform.scale_guards(2)
        _unchanged(platform, holder)


@contextmanager
def _profile(platform: Platform, node: str, name: str) -> Iterator[None]:
    platform.kube.kubectl("label", "node", node, f"{PROFILE}={name}", "--overwrite")
    try:
        yield
    finally:
        platform.kube.kubectl("label", "node", node, f"{PROFILE}-")


def test_a_driver_that_is_away_for_good_and_back(
    mode: Mode, measure: Callable[[str], None]
) -> None:
    """The kubelet takes the slice away; the Pod runs on, and gets its own devices back."""
    platform, node = mode.platform, mode.platform.boards[0]
    with platform.pod(npu_pod("npu-holder", node)) as holder:
        with _profile(platform, node, "nobody"):
            start = time.monotonic()
            until(
                lambda: _slices(platform, node),
                lambda slices: not slices,
                seconds=3 * WIPED_SECONDS,
                what="the end of the slice of a driver that is gone",
            )
            measure(f"dra: slice gone {time.monotonic() - start:.0f} s after its driver")
            _unchanged(platform, holder)
        start = time.monotonic()
        mode.offers()
        measure(f"dra: offered again {time.monotonic() - start:.0f} s after the driver was let in")
        _unchanged(platform, holder)
        with platform.pod(npu_pod("npu-second", node), phase="Pending"):
            assert mode.waits_because in platform.scheduler_says("npu-second")
    with platform.pod(npu_pod("npu-next", node)):
        events(platform, "npu-next")


def test_an_upgrade_of_the_driver_keeps_pods(mode: Mode) -> None:
    """Another Pod template is rolled out under a running Pod."""
    platform, node = mode.platform, mode.platform.boards[0]
    with platform.pod(npu_pod("npu-holder", node)) as holder:
        before = platform.component("plugin", node)["metadata"]["uid"]
        mode.install("plugin.podAnnotations.example\\.com/try=again")
        assert platform.component("plugin", node)["metadata"]["uid"] != before
        mode.offers()
        _unchanged(platform, holder)
    mode.install()
    with platform.pod(npu_pod("npu-next", node)):
        events(platform, "npu-next")


def test_a_node_moves_to_claims_and_back(mode: Mode, measure: Callable[[str], None]) -> None:
    """By its profile's label, as documented, even with NPU Pods left on it: never served twice."""
    platform, (node, other) = mode.platform, mode.platform.boards
    plain = Mode("devicePlugin", platform)
    plain.install("plugin.profiles.claims.mode=dra")
    plain.offers()
    # What the test's mode left: nothing, now that device plugins serve both boards.
    until(
        lambda: platform.kube.items("resourceslices", "-l", SELECTOR),
        lambda slices: not slices,
        seconds=30,
        what="no slice of a node that moved to the device plugin",
    )
    began = _version_of_slices(platform)
    try:
        with (
            platform.pod(npu_pod("npu-holder", node)) as holder,
            _profile(platform, node, "claims"),
        ):
            page = until(
                lambda: _allocations(platform, node),
                lambda seen: [d["reason"] for d in seen["devices"]] == ["held_in_other_mode"],
                seconds=90,
                what="an NPU that is withheld for its holder of the other mode",
            )
            assert page["devices"][0]["state"] == "withdrawn"
            until(lambda: _slices(platform, node), seconds=60, what="a slice")
            # Not for a moment: whoever had claimed it then would share it with the holder.
            written = _keys_of_taints(platform, node, since=began)
            assert written
            assert all(keys == {"npu-platform.io/withdrawn"} for keys in written), written
            # The kubelet says every ten seconds what there is. A Pod that was placed by what the
            # device plugin had before is turned away.
            until(
                lambda: int(platform.kube.allocatable(RESOURCE)[node] or 0),
                lambda seen: seen == 0,
                seconds=60,
                what="a node status without the NPU of the device plugin",
            )
            assert int(platform.kube.allocatable(RESOURCE)[other] or 0) == 1
            _unchanged(platform, holder)
            platform.kube.delete("pod", "npu-holder", "-n", "default", "--grace-period=1")
            start = time.monotonic()
            with platform.pod(npu_pod("npu-claims", node)) as claimed:
                took = time.monotonic() - start
                measure(f"moved to claims: a Pod runs {took:.0f} s after the last holder ended")
                assert claimed["status"]["extendedResourceClaimStatus"]
                assert until(lambda: _slices(platform, node), seconds=30, what="a slice")
        # Back, as the label is gone; what the kubelet counts again is the device plugin's.
        start = time.monotonic()
        plain.offers()
        measure(f"moved back: offered {time.monotonic() - start:.0f} s after the label was removed")
        with platform.pod(npu_pod("npu-back", node)) as back:
            assert "extendedResourceClaimStatus" not in back["status"]
            events(platform, "npu-back")
    finally:
        mode.install()


def _driver_files(platform: Platform, node: str) -> str:
    places = "/var/run/cdi /var/lib/kubelet/plugins_registry"
    return platform.cluster.exec(node, ["sh", "-c", f"ls {places}"]).stdout


def _version_of_slices(platform: Platform) -> str:
    """Return what to begin a watch of ResourceSlices with, to see all that is written from now."""
    listed = json.loads(platform.kube.raw(SLICES))
    return str(listed["metadata"]["resourceVersion"])


def _keys_of_taints(platform: Platform, node: str, *, since: str) -> list[set[str]]:
    """Return the taints of a node's devices in everything that was written of it, by device."""
    text = platform.kube.raw(f"{SLICES}?watch=true&timeoutSeconds=5&resourceVersion={since}")
    slices = [item["object"] for item in map(json.loads, text.splitlines())]
    return [
        {taint["key"] for taint in device.get("taints", ())}
        for item in slices
        if item["spec"].get("nodeName") == node
        for device in item["spec"]["devices"]
    ]


def _allocations(platform: Platform, node: str) -> Json:
    pods = platform.kube.items(
        "pods", "-n", NAMESPACE, "-l", f"{COMPONENT}=plugin,npu-platform.io/mode=dra"
    )
    mine = [pod for pod in pods if pod["spec"].get("nodeName") == node]
    if not mine:
        return {"devices": []}
    page: Json = json.loads(platform.kube.pod_http(mine[0], "/allocations"))
    return page


def test_two_vendors_on_one_node(mode: Mode) -> None:
    """A board with a Rockchip NPU and an Ascend card has two drivers; a Pod of each kind runs."""
    platform, node = mode.platform, mode.platform.boards[1]
    mode.install(f"simulator.boards.nodes.{node}=rk3588-ascend")
    try:
        until(
            lambda: {item["spec"]["driver"] for item in _slices(platform, node)},
            lambda drivers: drivers == {DRIVER, "ascend.npu-platform.io"},
            seconds=90,
            what="slices of two drivers",
        )
        card = npu_pod("npu-card", node)
        card["spec"]["containers"][0]["resources"] = {"limits": {"huawei.com/Ascend310": 1}}
        with platform.pod(card), platform.pod(npu_pod("npu-chip", node)):
            given = {
                name: next(
                    e["variables"]["NPU_DEVICE_IDS"]
                    for e in events(platform, name)
                    if e["event"] == "environment"
                )
                for name in ("npu-card", "npu-chip")
            }
            assert given == {"npu-card": "davinci0", "npu-chip": "npu0"}
    finally:
        mode.install()


def test_a_damaged_record_costs_no_running_pod(mode: Mode) -> None:
    """A container that restarts afterwards is started again: claims are told by the kubelet."""
    platform, node = mode.platform, mode.platform.boards[0]
    pod = npu_pod("npu-holder", node)
    pod["spec"]["restartPolicy"] = "Always"
    with platform.pod(pod):
        folder = f"/var/lib/kubelet/plugins/{DRIVER}"
        record = f"{folder}/npu-platform-checkpoint.json"
        platform.cluster.exec(node, ["sh", "-c", f"echo damaged > {record}"])
        platform.cluster.exec(node, ["kill", "-9", *platform.processes(node, "plugin")])
        until(
            lambda: platform.cluster.exec(node, ["ls", folder]).stdout,
            lambda names: ".broken" in names,
            seconds=60,
            what="the damaged record put aside",
        )
        mode.offers()
        platform.cluster.exec(node, ["kill", "-9", *platform.processes(node, "sample")])
        until(
            lambda: platform.kube.get("pod", "npu-holder", "-n", "default")["status"],
            lambda status: (
                [
                    s["restartCount"] > 0 and "running" in s["state"]
                    for s in status["containerStatuses"]
                ]
                == [True]
            ),
            seconds=90,
            what="the container again",
        )


def test_uninstall_while_hot_leaves_nothing(mode: Mode) -> None:
    """Slices, rules, classes, labels and condition go; the driver's files on the node, too."""
    platform, node = mode.platform, mode.platform.boards[0]
    platform.hold(node, HOT)
    until(
        lambda: platform.kube.items("devicetaintrules", "-l", SELECTOR),
        seconds=90,
        what="a rule for the hot device",
    )
    try:
        platform.kube.helm("uninstall", RELEASE, f"--namespace={NAMESPACE}", "--wait", seconds=400)
        left = until(
            lambda: [
                item["metadata"]["name"]
                for kind in ("resourceslices", "devicetaintrules", "deviceclasses")
                for item in platform.kube.items(kind)
            ],
            lambda names: not names,
            seconds=60,
            what="no object of mode dra",
        )
        assert left == []
        for name in platform.boards:
            item = platform.kube.node(name)
            marks = [key for key in item["metadata"]["labels"] if "rockchip.com" in key]
            marks += [
                c["type"] for c in item["status"]["conditions"] if c["type"].startswith("NPU")
            ]
            assert marks == []
            # Helm does not wait for the Pods of a DaemonSet to end.
            until(
                functools.partial(_driver_files, platform, name),
                lambda files: "npu" not in files,
                seconds=90,
                what="no file of the driver",
            )
    finally:
        mode.install()

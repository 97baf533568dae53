"""NPUs that are handed out by claims, seen like those of a device plugin."""

import json

import pytest

from kubectl_npu import __main__ as command
from kubectl_npu import claims, questions, why_node, why_pod
from kubectl_npu.client import RefusedError, failure
from kubectl_npu.picture import Picture, counts, requests
from tests.unit.kubectl_npu.objects import RESOURCE, Cluster, Json, node, pod

DRIVER = "npu.rockchip.com"


def device(name: str, *, tainted: bool = False) -> Json:
    found: Json = {"name": name, "attributes": {"resource": {"string": RESOURCE}}}
    return found | ({"taints": [{"key": "npu-platform.io/withdrawn"}]} if tainted else {})


def published(on: str, *devices: Json) -> Json:
    return {
        "metadata": {"name": f"{on}-{DRIVER}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": on,
            "pool": {"name": on},
            "devices": [{"name": "other"}, *devices],
        },
    }


def rule(on: str, *, device: str | None = None, effect: str = "NoSchedule") -> Json:
    selector = {"driver": DRIVER, "pool": on} | ({} if device is None else {"device": device})
    taint = {"key": "thermal.npu-platform.io/hot", "value": "hot", "effect": effect}
    return {"metadata": {"name": on}, "spec": {"deviceSelector": selector, "taint": taint}}


def plugin(on: str = "n1") -> Json:
    made = pod("plugin", on=on, asks=0)
    made["metadata"]["labels"] = {
        "npu-platform.io/mode": "dra",
        "app.kubernetes.io/component": "plugin",
    }
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return made


SLICE = published("n1", device("npu0-s0"), device("npu0-s1", tainted=True))


@pytest.mark.parametrize(
    ("rules", "offered", "taints"),
    [
        ([], 1, []),
        ([rule("n1", effect="None"), rule("n2")], 1, []),
        ([rule("n1", device="npu0-s0")], 0, []),
        # All of them are too hot: the node takes no NPU Pods, and none is broken.
        ([rule("n1")], 2, ["thermal.npu-platform.io/hot"]),
    ],
)
def test_published_devices_count_as_those_of_the_node(
    rules: list[Json], offered: int, taints: list[str]
) -> None:
    """Withdrawn ones are capacity only; heat of all devices is a taint; the Node stays as it is."""
    plain = node("n1", offers=0)

    made, other = claims.nodes_with([plain, node("n3")], [SLICE], rules)

    assert counts(made, "capacity", {RESOURCE}) == {RESOURCE: 2}
    assert counts(made, "allocatable", {RESOURCE}) == {RESOURCE: offered}
    assert [taint["key"] for taint in made["spec"].get("taints", [])] == taints
    assert plain == node("n1", offers=0)
    assert other == node("n3")


def test_what_the_kubelet_remembers_of_a_device_plugin_does_not_count() -> None:
    """A node that was moved keeps the name in its status, with nothing to give."""
    (made,) = claims.nodes_with([node("n1", offers=0, capacity=1)], [SLICE], [])

    assert counts(made, "capacity", {RESOURCE}) == {RESOURCE: 2}
    assert counts(made, "allocatable", {RESOURCE}) == {RESOURCE: 1}


def claim(name: str, *devices: str, driver: str = DRIVER) -> Json:
    results = [{"driver": driver, "pool": "n1", "device": name} for name in devices]
    return {
        "metadata": {"name": name, "namespace": "team"},
        "status": {"allocation": {"devices": {"results": results}}},
    }


def test_a_claim_counts_like_limits() -> None:
    """By its own name or that of a template; devices of others are none."""
    named = pod("named", on="n1", asks=0, resourceClaims=[{"name": "x", "resourceClaimName": "c1"}])
    made = pod("made", on="n1", asks=0, resourceClaims=[{"name": "x"}])
    made["status"]["resourceClaimStatuses"] = [{"name": "x", "resourceClaimName": "c2"}]
    other = pod("other", on="n1", asks=0, resourceClaims=[{"name": "x", "resourceClaimName": "c3"}])
    given = [
        claim("c1", "npu0-s0", "npu0-s1"),
        claim("c2", "npu0-s1"),
        claim("c3", "gpu0", driver="gpu.example.com"),
    ]

    seen = claims.pods_with([named, made, other, pod("plain", on="n1")], given, [SLICE])

    assert [requests(item, {RESOURCE}) for item in seen] == [
        {RESOURCE: 2},
        {RESOURCE: 1},
        {},
        {RESOURCE: 1},
    ]


def test_a_claim_without_a_device_is_explained_by_the_scheduler() -> None:
    """And not by advice to write limits."""
    waiting = pod("p", asks=0, resourceClaims=[{"name": "x", "resourceClaimName": "c1"}])
    waiting["status"]["conditions"] = [
        {"type": "PodScheduled", "message": "cannot allocate all claims"}
    ]

    (found,) = why_pod.explain(waiting, Picture(resources={RESOURCE}))

    assert found.check == "claim"
    assert "c1" in found.text
    assert "cannot allocate all claims" in found.text


def test_a_node_without_slices_names_the_guard() -> None:
    """The plugin may be well and nobody have published what it has."""
    picture = Picture(nodes=[node("n1", offers=0)], pods=[plugin()], resources={RESOURCE})

    (found,) = why_node.explain(picture.nodes[0], picture)

    assert "no ResourceSlice" in found.text
    assert "guard" in found.remedy


def test_log_of_a_driver() -> None:
    """A driver is known to the kubelet; nothing registers a resource."""
    lines = f"{questions.FOUND}\n{questions.KNOWN}\n"
    seen = questions.Seen(
        plugin_pods=[plugin()], nodes=[node("n1", offers=0)], logs={"team/plugin": lines}
    )

    found = {item.check: item for item in questions.checks(seen)}

    assert found["3 log"].level == "ok"
    assert "guard" in found["4 node"].remedy


def test_the_command_reads_slices_only_where_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a plugin of that mode; what may not be read is said once."""
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    cluster = Cluster()
    cluster.extra = [plugin("node3")]
    cluster.lists = {
        "resourceslices": [published("node3", device("npu0"))],
        "devicetaintrules": [],
        "resourceclaims": [],
    }
    assert command.main(["top", "--interval=0", "-o", "json"], cluster) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert "node3" in {item["node"] for item in items}

    refused = Cluster("get resourceslices")
    refused.extra = [plugin("node3")]
    refused.lists = {"devicetaintrules": [], "resourceclaims": []}
    assert command.main(["top", "--interval=0"], refused) == 0
    assert "resourceslices" in capsys.readouterr().err


def test_without_the_right_to_read_slices_the_scheduler_speaks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is said what is missing, and no node is said to offer too little."""
    cluster = Cluster("get resourceslices")
    cluster.extra = [plugin("node3"), pod("wants", asks=2)]
    cluster.lists = {"devicetaintrules": [], "resourceclaims": []}
    assert command.main(["why", "wants"], cluster) == 0
    told = capsys.readouterr()
    assert "the scheduler says" in told.out
    assert "not registered" not in told.out
    assert "resourceslices" in told.err


def test_refusal_names_the_kind_without_a_namespace() -> None:
    """Slices belong to no namespace."""
    said = (
        "Error from server (Forbidden): resourceslices.resource.k8s.io is forbidden: User "
        '"u" cannot list resource "resourceslices" in API group "resource.k8s.io" at the '
        "cluster scope"
    )
    error = failure(["get", "resourceslices"], said)
    assert isinstance(error, RefusedError)
    assert str(error).startswith("you may not list resourceslices: left out")


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("containerd://1.6.20", "fail"),
        ("containerd://1.7.24-ds1", "warn"),
        ("containerd://2.4.2", None),
        ("cri-o://1.33.0", None),
        ("", None),
    ],
)
def test_a_runtime_without_cdi_is_named(version: str, level: str | None) -> None:
    """Its Pods run without their NPU, and nothing else tells."""
    item = node("n1")
    item["status"]["nodeInfo"] = {"containerRuntimeVersion": version}
    told = why_node.explain(item, Picture(nodes=[item], pods=[plugin()], resources={RESOURCE}))
    assert [found.level for found in told if found.check == "runtime"] == [level] * bool(level)
    seen = questions.Seen(plugin_pods=[plugin()], nodes=[item], resources={RESOURCE})
    running = [found for found in questions.checks(seen) if found.check == "2 running"]
    assert [found.level for found in running] == [level] * bool(level)


def test_a_device_plugin_needs_no_cdi() -> None:
    """Device nodes reach containers of any runtime."""
    item = node("n1")
    item["status"]["nodeInfo"] = {"containerRuntimeVersion": "containerd://1.6.20"}
    picture = Picture(nodes=[item], pods=[pod("plugin", on="n1", asks=0)], resources={RESOURCE})
    assert [found.check for found in why_node.explain(item, picture)] == ["offer"]

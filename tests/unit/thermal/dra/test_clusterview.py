"""Which nodes hand devices out by claims, and which do no more."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from thermal.clusterview import WatchedCluster
from thermal.dra.rules import Rule, RuleRecord
from thermal.dra.slices import SliceRecord
from thermal.dra.view import Caches
from thermal.names import TAINT_HOT
from thermal.objects import Json, NodeRecord, PodRecord, pod_record

if TYPE_CHECKING:
    from thermal.watch import Cache

DRIVER = "npu.rockchip.com"


@dataclass
class Stored:
    """What a cache holds."""

    items: dict[str, object] = field(default_factory=dict)

    def records(self) -> dict[str, object]:
        """Return all of it."""
        return self.items


def plugin(node: str, *, mode: str = "", phase: str = "Running", ends: bool = False) -> PodRecord:
    """Return a plugin Pod as the API server shows it."""
    metadata: Json = {"name": f"{node}-{mode}", "labels": {"npu-platform.io/mode": mode}}
    if not mode:
        metadata["labels"] = {}
    if ends:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return pod_record(
        {
            "metadata": metadata,
            "spec": {"nodeName": node},
            "status": {"phase": phase, "podIP": "10.0.0.1"},
        }
    )


def cluster(
    *plugins: PodRecord,
    published: tuple[str, ...] = (),
    ruled: tuple[str, ...] = (),
    tainted: tuple[str, ...] = (),
) -> WatchedCluster:
    """Return a cluster with these Pods, and nodes with a slice, a rule or a taint of their own."""
    slices = {
        node: SliceRecord(
            name=node, driver=DRIVER, node=node, generation=1, resource_version="1", devices=()
        )
        for node in published
    }
    rules = {
        node: RuleRecord(
            rule=Rule(
                name=node, node=node, driver=DRIVER, device=None, effect="NoSchedule", value="hot"
            ),
            resource_version="1",
            state="",
            verdict="",
        )
        for node in ruled
    }
    caches = Caches(
        plugins=cast("Cache[PodRecord]", Stored({pod.name: pod for pod in plugins})),
        slices=cast("Cache[SliceRecord]", Stored({**slices})),
        rules=cast("Cache[RuleRecord]", Stored({**rules})),
    )
    hot = {"key": TAINT_HOT, "effect": "NoSchedule"}
    nodes: dict[str, object] = {
        pod.node: NodeRecord(name=pod.node, taints=(hot,) if pod.node in tainted else ())
        for pod in plugins
    }
    pods = cast("Cache[PodRecord]", Stored())
    return WatchedCluster(cast("Cache[NodeRecord]", Stored(nodes)), pods, caches)


def test_a_node_serves_claims_by_its_plugin_and_by_what_it_left() -> None:
    """A kubelet that restarts wipes slices; a board without power keeps them and has no plugin."""
    seen = cluster(
        plugin("new", mode="dra", phase="Pending"),
        plugin("other"),
        published=("dark",),
        ruled=("hot",),
    )
    assert seen.claims() == {"new", "dark", "hot"}
    assert [pod.node for pod in seen.plugins().values()] == ["new"]
    assert seen.counted() == {"other"}


def test_a_node_that_moved_serves_claims_no_more() -> None:
    """As soon as the device plugin runs and no running driver is left, whatever is published."""
    before = plugin("n1", mode="dra")
    left = {"published": ("n1",), "ruled": ("n1",)}
    assert cluster(before, plugin("n1", phase="Pending"), **left).claims() == {"n1"}
    assert cluster(before, plugin("n1"), **left).claims() == {"n1"}
    ending = plugin("n1", mode="dra", ends=True)
    assert cluster(ending, plugin("n1", phase="Pending"), **left).claims() == {"n1"}
    for moved in (cluster(ending, plugin("n1"), **left), cluster(plugin("n1"), **left)):
        assert moved.claims() == frozenset()
        assert moved.counted() == {"n1"}
    # And back: the old plugin ends while the driver is on its way.
    assert cluster(plugin("n1", ends=True), plugin("n1", mode="dra", phase="Pending")).claims()


def test_a_hot_node_is_tainted_until_its_devices_are() -> None:
    """On the way to claims its Node keeps the taint until there are rules; not one gap."""
    ending, coming = plugin("n1", ends=True), plugin("n1", mode="dra", phase="Pending")
    runs = plugin("n1", mode="dra")
    for moving in (
        cluster(plugin("n1"), tainted=("n1",)),
        cluster(plugin("n1"), coming, tainted=("n1",)),
        cluster(ending, coming, tainted=("n1",)),
        cluster(ending, runs, published=("n1",), tainted=("n1",)),
        cluster(runs, tainted=("n1",)),
        cluster(runs, published=("n1",), tainted=("n1",)),
    ):
        assert moving.plain().claims() == frozenset()
    arrived = cluster(runs, published=("n1",), ruled=("n1",), tainted=("n1",))
    assert arrived.plain().claims() == {"n1"}
    # One that is not hot has no taint to keep, and gets hot as any other of that mode.
    assert cluster(runs, published=("n1",)).plain().claims() == {"n1"}


def test_a_hot_node_on_its_way_back_is_tainted_before_its_device_plugin_runs() -> None:
    """The kubelet counts its NPUs before the API server is told that the Pod runs."""
    left = {"published": ("n1",), "ruled": ("n1",)}
    coming = plugin("n1", phase="Pending")
    for moving in (
        cluster(plugin("n1", mode="dra"), coming, **left),
        cluster(plugin("n1", mode="dra", ends=True), coming, **left),
        cluster(coming, **left),
    ):
        assert moving.claims() == {"n1"}
        assert moving.plain().claims() == frozenset()


def test_without_claims_there_is_nothing_of_it() -> None:
    """Most clusters: neither is watched."""
    nothing = cast("Cache[PodRecord]", Stored())
    seen = WatchedCluster(cast("Cache[object]", nothing), nothing, None)  # type: ignore[arg-type]
    assert (seen.claims(), seen.counted(), seen.plugins()) == (frozenset(), frozenset(), {})

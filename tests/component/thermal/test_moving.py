"""A hot node that moves between the modes, back and forth: its NPU is never to be had meanwhile."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import pytest

from tests.component.fake_apiserver import FakeApiServer
from tests.component.thermal.guard_rig import Board, Boards, Term, client_of, hot_taint
from thermal.acting import Actor
from thermal.api import NODES
from thermal.clusterview import WatchedCluster
from thermal.config import Config, Dra
from thermal.dra.objects import Objects
from thermal.dra.offers import NodeOffer, OfferedDevice, OfferedDriver
from thermal.dra.publisher import Publisher
from thermal.dra.rules import RULES, rule_record
from thermal.dra.ruling import Ruler
from thermal.dra.slices import SLICES, slice_record
from thermal.dra.view import Caches
from thermal.judging import Judge
from thermal.metrics import Metrics
from thermal.objects import Json, node_record, pod_record
from thermal.source import Failure, Target
from thermal.writer import NodeActuator

if TYPE_CHECKING:
    from thermal.watch import Cache

T = TypeVar("T")
NPU = OfferedDevice(name="npu0", state="healthy", reason="ok")
DRIVER = OfferedDriver(name="npu.rockchip.com", registered=True, devices=(NPU,))


@dataclass
class Seen(Generic[T]):
    """What a perfect cache holds; what did not change stays the same object."""

    stored: Callable[[], list[Json]]
    trim: Callable[[Json], T]
    known: dict[str, tuple[str, T]] = field(default_factory=dict)
    synced: bool = True

    def records(self) -> dict[str, T]:
        """Return all of it."""
        for item in self.stored():
            name, text = item["metadata"]["name"], repr(item)
            if name not in self.known or self.known[name][0] != text:
                self.known[name] = text, self.trim(item)
        names = {item["metadata"]["name"] for item in self.stored()}
        return {name: seen for name, (_, seen) in self.known.items() if name in names}


def seen(stored: Callable[[], list[Json]], trim: Callable[[Json], T]) -> "Cache[T]":
    """Return such a cache."""
    return cast("Cache[T]", Seen(stored, trim))


class Moving:
    """The plugin Pods of node n1, and a guard whose loops run in any order."""

    def __init__(self, server: FakeApiServer, chance: random.Random) -> None:
        self.server = server
        self.chance = chance
        self.pods: list[Json] = []
        self.made = 0
        self.now = 1000.0
        self.board = Board(66.0)
        self.term = Term(1)
        self.open: list[tuple[float, str]] = []
        config, client = Config(dra=Dra(enabled=True)), client_of(server)
        metrics = Metrics(mode="enforce")
        exporters = "/api/v1/namespaces/npu/pods"
        cluster = WatchedCluster(
            seen(lambda: server.objects(NODES), node_record),
            seen(lambda: server.objects(exporters), pod_record),
            Caches(
                plugins=seen(lambda: self.pods, pod_record),
                slices=seen(lambda: server.objects(SLICES), slice_record),
                rules=seen(lambda: server.objects(RULES), rule_record),
            ),
        )

        def clock() -> float:
            return self.now

        judge = Judge(
            config,
            cluster=cluster,
            source=Boards({"n1": self.board, "n2": Board()}),
            leadership=self.term,
            metrics=metrics,
            monotonic=clock,
        )
        actuator = NodeActuator(
            client, allowed=lambda: True, instance="g", sleep=lambda _seconds: None
        )
        actor = Actor(
            config,
            cluster=cluster.plain(),
            judgement=lambda: judge.judgement,
            leadership=self.term,
            actuator=actuator,
            metrics=metrics,
            monotonic=clock,
        )
        publisher = Publisher(
            Objects(client, kind="ResourceSlice", path=SLICES),
            view=cluster,
            pages=self,
            leadership=self.term,
            release="npu",
            monotonic=clock,
        )
        ruler = Ruler(
            config,
            Objects(client, kind="DeviceTaintRule", path=RULES),
            view=cluster,
            judgement=lambda: judge.judgement,
            leadership=self.term,
            actuator=actuator,
            release="npu",
            monotonic=clock,
        )
        self.judge = judge
        self.loops = [actor.step, publisher.step, ruler.step]

    def read(self, targets: list[Target]) -> Mapping[str, NodeOffer | Failure]:
        """Answer for the driver, if it runs."""
        return {
            target.node: NodeOffer(pool=target.node, drivers=(DRIVER,))
            for target in targets
            if self.running(claims=True)
        }

    def running(self, *, claims: bool) -> bool:
        """Tell whether a plugin serves, also one that is about to end."""
        return any(
            pod["status"]["phase"] == "Running" and bool(pod["metadata"]["labels"]) == claims
            for pod in self.pods
        )

    def move(self, *, claims: bool) -> None:
        """Do what the controllers of two DaemonSets do when a node's profile changes."""
        for pod in self.pods:
            if bool(pod["metadata"]["labels"]) != claims:
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.made += 1
        labels = {"npu-platform.io/mode": "dra"} if claims else {}
        self.pods.append(
            {
                "metadata": {"name": f"plugin-{self.made}", "labels": labels},
                "spec": {"nodeName": "n1"},
                "status": {"phase": "Pending", "podIP": "192.0.2.1"},
            }
        )

    def run(self, seconds: int, *, leaders: float = 0.0) -> None:
        """Let time pass, with a look after each turn of each loop; leaders change with a chance."""
        for _ in range(seconds):
            self.now += 1.0
            if self.chance.random() < leaders:
                self.term.term = (self.term.term or 0) + 1
            self.judge.step()
            self.chance.shuffle(self.loops)
            for step in self.loops:
                step()
                self.look()
            for pod in list(self.pods):
                if self.chance.random() < 0.6:
                    continue
                if "deletionTimestamp" in pod["metadata"]:
                    self.pods.remove(pod)
                else:
                    pod["status"]["phase"] = "Running"

    def look(self) -> None:
        """Note how a Pod could get the NPU now."""
        if hot_taint(self.server.node("n1")) is not None:
            return
        effects = {rule["spec"]["taint"]["effect"] for rule in self.server.objects(RULES)}
        if self.running(claims=False):
            self.open.append((self.now, "the kubelet counts it"))
        if self.server.objects(SLICES) and "NoSchedule" not in effects:
            self.open.append((self.now, "a slice offers it"))


@pytest.fixture(params=range(6))
def moving(server: FakeApiServer, request: pytest.FixtureRequest) -> Moving:
    """A node of either mode that got hot."""
    moving = Moving(server, random.Random(request.param))  # noqa: S311 (no secret)
    moving.move(claims=request.param % 2 == 0)
    moving.run(20)
    moving.board.celsius = 83.0
    moving.run(60)
    moving.open.clear()
    return moving


def back_and_forth(moving: Moving, *, leaders: float) -> None:
    """Move the node every few seconds, sometimes before it arrived."""
    claims = bool(moving.pods[0]["metadata"]["labels"])
    for _ in range(25):
        claims = not claims
        moving.move(claims=claims)
        moving.run(moving.chance.randint(1, 12), leaders=leaders)


def test_a_hot_node_is_closed_at_each_moment(moving: Moving) -> None:
    """By a taint or by a rule, whatever order the loops have."""
    back_and_forth(moving, leaders=0.0)
    moving.run(30)
    assert moving.open == []


def test_a_new_leader_knows_of_the_heat_of_a_node_that_moves(moving: Moving) -> None:
    """At a temperature at which only what was hot before still is."""
    moving.board.celsius = 76.0
    back_and_forth(moving, leaders=0.1)
    moving.run(60)
    moving.open.clear()
    moving.run(10)
    assert moving.open == []

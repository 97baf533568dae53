"""A guard in one process on a fake API server: real HTTP, injected time and readings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from kubernetes.client import Configuration

from tests.component.fake_apiserver import FakeApiServer, Json
from thermal.acting import Actor
from thermal.api import NODES
from thermal.config import Config
from thermal.evictor import Evictor
from thermal.journal import Journal
from thermal.judging import Judge
from thermal.kube import Client, Limits
from thermal.metrics import Metrics
from thermal.names import TAINT_HOT
from thermal.objects import NodeRecord, PodRecord, node_record, pod_record
from thermal.readings import DeviceSample, NodeSample
from thermal.source import Failure, Result, Target
from thermal.tokens import FixedToken
from thermal.writer import NodeActuator


def client_of(server: FakeApiServer, limits: Limits | None = None) -> Client:
    """Return a real client for a fake server."""
    configuration = Configuration()
    configuration.host = server.url
    return Client(configuration, FixedToken(token=server.token), limits)


class Board:
    """What the exporter of a node would report; None is no temperature."""

    def __init__(self, celsius: float | None = 45.0, **about: object) -> None:
        self.celsius = celsius
        self.reachable = True
        self.about = {"vendor": "rockchip", "model": "rk3588", "driver": "rknpu", **about}

    def result(self) -> Result:
        """Return the reading of now."""
        if not self.reachable:
            return Failure(reason="timeout")
        device = msgspec.convert(
            {"device": "npu0", "celsius": self.celsius, **self.about}, DeviceSample
        )
        return NodeSample(devices=(device,))


class Boards:
    """A source of readings."""

    def __init__(self, boards: Mapping[str, Board]) -> None:
        self.boards = boards

    def read(self, targets: Sequence[Target]) -> Mapping[str, Result]:
        """Return the readings of the targets."""
        return {target.node: self.boards[target.node].result() for target in targets}


class SeenCluster:
    """The cluster as a perfect cache would show it; ``lag`` shows an old one instead."""

    synced = True

    def __init__(self, server: FakeApiServer) -> None:
        self._server = server
        self.lag: dict[str, NodeRecord] | None = None
        self.with_claims: frozenset[str] = frozenset()

    def claims(self) -> frozenset[str]:
        """Return the nodes that hand devices out by claims."""
        return self.with_claims

    def nodes(self) -> dict[str, NodeRecord]:
        """Return all Nodes."""
        if self.lag is not None:
            return self.lag
        return {n["metadata"]["name"]: node_record(n) for n in self._server.objects(NODES)}

    def pods(self) -> dict[str, PodRecord]:
        """Return the exporter Pods."""
        listed = self._server.objects("/api/v1/namespaces/npu/pods")
        return {pod["metadata"]["name"]: pod_record(pod) for pod in listed}


@dataclass
class Term:
    """Leadership as a test wants it."""

    term: int | None = 1


class Rig:
    """Judge and actor on a fake clock; :meth:`run` lets seconds pass."""

    def __init__(
        self,
        server: FakeApiServer,
        boards: Mapping[str, Board],
        *,
        config: Config | None = None,
        now: float = 1000.0,
    ) -> None:
        self.server = server
        self.boards = boards
        self.now = now
        self.leadership = Term()
        self.client = client_of(server)
        self.cluster = SeenCluster(server)
        self.metrics = Metrics(mode="enforce")
        self.journal = Journal()
        chosen = config or Config()
        self.judge = Judge(
            chosen,
            cluster=self.cluster,
            source=Boards(boards),
            leadership=self.leadership,
            metrics=self.metrics,
            journal=self.journal,
            monotonic=lambda: self.now,
        )
        actuator = NodeActuator(
            self.client,
            allowed=lambda: self.leadership.term is not None,
            instance="guard-0",
            journal=self.journal,
            sleep=lambda _seconds: None,
        )
        self.evictor = Evictor(
            chosen,
            self.client,
            cluster=self.cluster,
            judgement=lambda: self.judge.judgement,
            leadership=self.leadership,
            actuator=actuator,
            metrics=self.metrics,
            monotonic=lambda: self.now,
        )
        self.actor = Actor(
            chosen,
            cluster=self.cluster,
            judgement=lambda: self.judge.judgement,
            leadership=self.leadership,
            actuator=actuator,
            metrics=self.metrics,
            monotonic=lambda: self.now,
        )

    def run(self, seconds: float) -> "Rig":
        """Let time pass, one turn of both loops a second."""
        for _ in range(int(seconds)):
            self.now += 1.0
            self.judge.step()
            self.actor.step()
            self.evictor.step()
        return self

    def heat(self, node: str, celsius: float = 83.0) -> "Rig":
        """Bring a cool board above 80 °C and wait until it is hot."""
        self.boards[node].celsius = 66.0
        self.run(20)
        self.boards[node].celsius = celsius
        return self.run(60)

    def state(self, node: str) -> str | None:
        """Return the judged state of a node."""
        judgement = self.judge.judgement
        if judgement is None or node not in judgement.statuses:
            return None
        decision = judgement.statuses[node].decision
        return None if decision is None else decision.state.value


def hot_taint(node: Json) -> Json | None:
    """Return our taint on a Node."""
    taints: list[Json] = node["spec"].get("taints", [])
    return next((taint for taint in taints if taint["key"] == TAINT_HOT), None)


def condition(node: Json) -> Json | None:
    """Return our condition on a Node."""
    conditions: list[Json] = node["status"]["conditions"]
    return next((item for item in conditions if item["type"] == "NPUOverheated"), None)

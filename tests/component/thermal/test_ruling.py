"""Rules follow the judgement, and a person who takes one away."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from npu.heat import Heat
from npu.thresholds import Settings
from tests.component.fake_apiserver import FakeApiServer
from thermal.actions import Action, Release, StopNewWork
from thermal.config import Config, Dra
from thermal.dra.rules import RULES, RuleRecord, rule_record
from thermal.dra.ruling import Ruler
from thermal.dra.slices import SliceRecord
from thermal.fleet import NodeStatus
from thermal.judging import Judgement
from thermal.kube import Client
from thermal.objects import NodeRecord
from thermal.policy import Decision
from thermal.writer import NodeActuator

SLICE = SliceRecord(
    name="s",
    driver="npu.rockchip.com",
    node="n1",
    generation=1,
    resource_version="1",
    devices=({"name": "npu0"},),
)
RULE = "n1-npu.rockchip.com"


@dataclass
class World:
    """One node that serves claims, and what was judged of it."""

    server: FakeApiServer
    actions: tuple[Action, ...] = ()
    state: Heat = Heat.COOL
    published: bool = True
    nodes_: dict[str, NodeRecord] = field(default_factory=lambda: {"n1": NodeRecord(name="n1")})
    term: int | None = 1
    now: float = 0.0

    def nodes(self) -> dict[str, NodeRecord]:
        """Return the Nodes."""
        return self.nodes_

    def slices(self) -> dict[str, SliceRecord]:
        """Return the slice, unless it was wiped."""
        return {"s": SLICE} if self.published else {}

    def rules(self) -> dict[str, RuleRecord]:
        """Return what is stored."""
        records = [rule_record(item) for item in self.server.objects(RULES)]
        return {record.rule.name: record for record in records}

    def judgement(self) -> Judgement:
        """Return the judgement now."""
        decision = Decision(
            node="n1", state=self.state, condition=None, actions=self.actions, devices=()
        )
        status = NodeStatus(
            node="n1",
            decision=decision,
            devices=(),
            limits=Settings().resolve(),
            since="",
            sample_age_seconds=0.0,
            problem=None,
        )
        return Judgement(term=1, statuses={"n1": status})


@pytest.fixture
def world(server: FakeApiServer) -> World:
    """A cool node."""
    return World(server=server)


Turn = Callable[[float], list[str]]


@pytest.fixture
def turn(world: World, tmp_path_factory: pytest.TempPathFactory) -> Turn:
    """Let time pass and return the methods of what was written."""
    file = tmp_path_factory.mktemp("kube") / "config"
    file.write_text(world.server.kubeconfig())
    client = Client.from_kubeconfig(file)
    ruler = Ruler(
        Config(dra=Dra(enabled=True), manual_pause_seconds=100.0),
        client,
        view=world,
        judgement=world.judgement,
        leadership=world,
        actuator=NodeActuator(client, allowed=lambda: True, instance="g"),
        release="npu",
        monotonic=lambda: world.now,
    )

    def run(seconds: float) -> list[str]:
        before = len(world.server.writes())
        end = world.now + seconds
        while world.now < end:
            world.now += 1.0
            ruler.step()
        return [seen.method for seen in world.server.writes()[before:]]

    return run


def heat(world: World, state: Heat = Heat.HOT) -> None:
    """Let the node be hot."""
    world.state, world.actions = state, (StopNewWork(devices=("npu0",)),)


def test_rules_come_stay_and_go(world: World, turn: Turn) -> None:
    """One write each; a wiped slice takes no rule away."""
    assert turn(10) == []
    heat(world)
    assert turn(10) == ["POST"]
    assert world.rules()[RULE].rule.effect == "NoSchedule"
    world.published = False
    assert turn(10) == []
    world.published = True
    world.state, world.actions = Heat.COOL, (Release(),)
    assert turn(10) == ["DELETE"]


def test_a_person_may_take_a_rule_away(world: World, turn: Turn) -> None:
    """It stays away for a while, unless the board gets critical."""
    heat(world)
    turn(20)
    world.server.delete(f"{RULES}/{RULE}")
    assert turn(90) == []
    heat(world, Heat.CRITICAL)
    assert turn(5) == ["POST"]


def test_overrides_and_leadership(world: World, turn: Turn) -> None:
    """A standby writes nothing; a disabled node has no rule; an observed one asks only."""
    heat(world)
    world.term = None
    assert turn(5) == []
    world.term = 1
    observed = {"thermal.npu-platform.io/guard": "observe"}
    world.nodes_ = {"n1": NodeRecord(name="n1", labels=observed)}
    assert turn(5) == ["POST"]
    assert world.rules()[RULE].rule.effect == "None"
    disabled = {"thermal.npu-platform.io/guard": "disabled"}
    world.nodes_ = {"n1": replace(world.nodes_["n1"], labels=disabled)}
    assert turn(5) == ["DELETE"]
    world.nodes_ = {"n1": NodeRecord(name="n1")}
    turn(5)
    world.nodes_ = {}
    assert turn(5) == ["DELETE"]

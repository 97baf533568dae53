"""Rules follow the judgement, and a person who takes one away."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from npu.heat import Heat
from npu.thresholds import Settings
from tests.component.fake_apiserver import FakeApiServer, RefusedError, Seen
from tests.component.thermal.guard_rig import client_of
from tests.unit.thermal.fleet_facts import decision
from thermal.actions import Action, Release, StopNewWork
from thermal.config import Config, Dra
from thermal.dra.objects import Objects
from thermal.dra.rules import RULES, RuleRecord, rule_record
from thermal.dra.ruling import Ruler
from thermal.dra.slices import SliceRecord
from thermal.errors import ApiError
from thermal.fleet import NodeStatus
from thermal.judging import Judgement
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
    hidden: bool = False
    moved: set[str] = field(default_factory=set)
    tainted_: set[str] = field(default_factory=set)
    nodes_: dict[str, NodeRecord] = field(default_factory=lambda: {"n1": NodeRecord(name="n1")})
    term: int | None = 1
    now: float = 0.0
    failures: list[ApiError] = field(default_factory=list)

    def nodes(self) -> dict[str, NodeRecord]:
        """Return the Nodes."""
        return self.nodes_

    def counted(self) -> frozenset[str]:
        """Return the nodes that moved to the other mode."""
        return frozenset(self.moved)

    def tainted(self) -> frozenset[str]:
        """Return the nodes with a taint of their own."""
        return frozenset(self.tainted_)

    def slices(self) -> dict[str, SliceRecord]:
        """Return the slice, unless it was wiped."""
        return {"s": SLICE} if self.published else {}

    def rules(self) -> dict[str, RuleRecord]:
        """Return what is stored."""
        stored = [] if self.hidden else self.server.objects(RULES)
        records = [rule_record(item) for item in stored]
        return {record.rule.name: record for record in records}

    def judgement(self) -> Judgement:
        """Return the judgement now."""
        made = Decision(
            node="n1", state=self.state, condition=None, actions=self.actions, devices=()
        )
        status = NodeStatus(
            node="n1",
            decision=made,
            devices=(),
            limits=Settings().resolve(),
            since="",
            sample_age_seconds=0.0,
            problem=None,
        )
        return Judgement(term=1, statuses={"n1": status})


@dataclass
class Fleet(World):
    """Many nodes that serve claims."""

    statuses: dict[str, NodeStatus] = field(default_factory=dict)

    def slices(self) -> dict[str, SliceRecord]:
        """Return one slice per node."""
        return {name: replace(SLICE, name=name, node=name) for name in self.nodes_}

    def judgement(self) -> Judgement:
        """Return the judgement now."""
        return Judgement(term=1, statuses=self.statuses)


@pytest.fixture
def world(server: FakeApiServer) -> World:
    """A cool node."""
    return World(server=server)


Turn = Callable[[float], list[str]]


@pytest.fixture
def turn(world: World) -> Turn:
    """Let time pass and return the methods of what was written."""
    return turns(world)


def turns(world: World) -> Turn:
    """Return what lets time pass and returns the methods of what was written."""
    client = client_of(world.server)
    ruler = Ruler(
        Config(dra=Dra(enabled=True), manual_pause_seconds=100.0),
        Objects(client, kind="DeviceTaintRule", path=RULES, failed=world.failures.append),
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


def test_a_node_that_moved_to_the_other_mode_loses_its_rules(world: World, turn: Turn) -> None:
    """Hot as it is: a rule for devices that are gone would stand in the way of the Node's taint."""
    world.state, world.actions = Heat.HOT, (StopNewWork(soft=False, devices=("npu0",)),)
    assert turn(5) == ["POST"]
    world.moved.add("n1")
    # What is still published is still to be had.
    world.tainted_.add("n1")
    assert turn(30) == []
    world.published = False
    assert turn(10) == ["DELETE"]


def test_the_rule_of_a_node_that_moved_stays_until_its_taint_is_there(
    world: World, turn: Turn
) -> None:
    """A leader that comes in between knows of the heat by one of them; a cool one needs none."""
    heat(world)
    assert turn(5) == ["POST"]
    world.moved.add("n1")
    world.published = False
    assert turn(30) == []
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


def test_a_name_that_is_taken_is_told(
    world: World, turn: Turn, caplog: pytest.LogCaptureFixture
) -> None:
    """A rule of that name that is not ours leaves a hot board without one: somebody must know."""
    world.server.put(f"{RULES}/{RULE}", {"metadata": {"name": RULE}, "spec": {}})
    world.hidden = True
    heat(world)
    assert turn(10).count("POST") > 1
    assert world.failures == []
    turn(20)
    assert [error.status for error in world.failures] == [409]
    assert "DeviceTaintRule of that name is not ours" in caplog.text
    assert len(turn(60)) <= 3
    world.server.delete(f"{RULES}/{RULE}")
    world.hidden = False
    assert turn(60) == ["POST"]


def test_a_name_that_was_taken_long_ago_is_no_news(
    world: World, turn: Turn, caplog: pytest.LogCaptureFixture
) -> None:
    """A cache that is late for a moment, twice in an hour, is no object of somebody else."""
    for _ in range(2):
        world.server.put(f"{RULES}/{RULE}", {"metadata": {"name": RULE}, "spec": {}})
        world.hidden = True
        heat(world)
        assert set(turn(5)) == {"POST"}
        world.state, world.actions = Heat.COOL, ()
        world.server.delete(f"{RULES}/{RULE}")
        world.hidden = False
        turn(3600)
    assert world.failures == []
    assert "not ours" not in caplog.text


def test_failures_are_counted_and_not_hurried(world: World, turn: Turn) -> None:
    """A refusal leaves the node alone for a while, an API server that is away all of them."""

    def refuse(seen: Seen) -> None:
        if seen.writes:
            raise RefusedError(422, "invalid")

    world.server.refuse = refuse
    heat(world)
    assert turn(20) == ["POST"]
    assert [error.status for error in world.failures] == [422]

    def away(seen: Seen) -> None:
        if seen.writes:
            raise RefusedError(503, "away")

    world.server.refuse = away
    assert len(turn(30)) < 10
    assert len(world.failures) == len(world.server.writes())


def test_a_heat_wave_of_a_thousand_nodes_is_ruled_hottest_first(server: FakeApiServer) -> None:
    """300 boards at once: ten rules a second, those in an emergency before all others."""
    names = [f"n{number:04}" for number in range(1000)]
    statuses = {}
    for number, name in enumerate(names):
        state = Heat.EMERGENCY if number % 100 == 99 else Heat.HOT if number % 3 == 0 else Heat.COOL
        made = decision(name, state, celsius=102.0 if state is Heat.EMERGENCY else 80 + number % 9)
        statuses[name] = NodeStatus(
            node=name,
            decision=made,
            devices=(),
            limits=Settings().resolve(),
            since="",
            sample_age_seconds=0.0,
            problem=None,
        )
    nodes = {name: NodeRecord(name=name) for name in names}
    wave = Fleet(server=server, nodes_=nodes, statuses=statuses)
    run = turns(wave)

    first = run(2)
    assert len(first) <= 21
    emergencies = {f"{name}-npu.rockchip.com" for name in names[99::100]}
    assert set(wave.rules()) >= emergencies
    seconds = 2
    while written := run(1):
        seconds += 1
        assert len(written) <= 11
    decisions = [status.decision for status in statuses.values()]
    hot = sum(made is not None and made.stop is not None for made in decisions)
    assert len(wave.rules()) == hot > 300
    assert hot / 10 - 1 <= seconds <= hot / 10 + 5

    wave.statuses = {
        name: replace(status, decision=decision(name, Heat.RECOVERING))
        for name, status in statuses.items()
    }
    while run(1):
        pass
    assert wave.rules() == {}


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

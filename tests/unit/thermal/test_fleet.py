"""Whom to ask when, and what a fleet remembers over restarts."""

from npu.heat import Heat
from npu.thresholds import Settings, Trip
from thermal.fleet import Fleet, NodeStatus
from thermal.names import ANNOTATION_STATE, TAINT_HOT
from thermal.objects import NodeRecord, PodRecord
from thermal.policy import Policy
from thermal.readings import DeviceSample, NodeSample
from thermal.source import Failure, Target

HOT_TAINT = {"key": TAINT_HOT, "value": "80", "effect": "NoSchedule"}
HOT_RECORD = '{"state":"hot","since":"earlier","devices":{"npu0":"hot"},"hotEntries":{"npu0":3}}'


def pod(node: str, *, name: str = "", running: bool = True) -> PodRecord:
    return PodRecord(
        name=name or node, uid=name or node, node=node, address="10.0.0.1", running=running
    )


class _World:
    """One node with an exporter, and a fleet over it."""

    def __init__(self, node: NodeRecord | None = None) -> None:
        self.fleet = Fleet(Settings(), Policy(), wall=lambda: f"at {self.now:g}")
        self.nodes = {"n1": node or NodeRecord(name="n1", ready=True)}
        self.pods = {"n1": pod("n1")}
        self.now = 1000.0
        self.asked: list[float] = []

    def run(self, seconds: int, sample: NodeSample | None) -> NodeStatus | None:
        """Let time pass, one turn a second; return the node's status at the end."""
        status = None
        for _ in range(seconds):
            self.now += 1.0
            targets, results = self.fleet.due(self.nodes, self.pods, self.now)
            for target in targets:
                self.asked.append(self.now)
                results[target.node] = sample or Failure(reason="timeout")
            self.fleet.observe(results, self.now)
            status = self.fleet.judge(self.nodes, self.pods, self.now).get("n1")
        return status


def board(celsius: float | None, *devices: str, trips: tuple[Trip, ...] = ()) -> NodeSample:
    return NodeSample(
        devices=tuple(
            DeviceSample(device=device, vendor="rockchip", model="rk3588", celsius=celsius)
            for device in devices or ("npu0",)
        ),
        trips=trips,
    )


def state(status: NodeStatus | None) -> Heat | None:
    return None if status is None or status.decision is None else status.decision.state


def test_cool_nodes_are_asked_every_five_seconds_and_warm_ones_every_two() -> None:
    """Heat is followed more closely."""
    world = _World()
    world.run(60, board(45.0))
    assert len(world.asked) == 12
    world.run(20, board(69.0))
    world.run(30, board(76.0))
    world.asked.clear()

    world.run(20, board(76.0))

    assert len(world.asked) == 10


def test_nothing_is_published_before_three_readings() -> None:
    """After a start the node is known, its state is not."""
    world = _World()

    early = world.run(7, board(45.0))

    assert early is not None
    assert early.decision is None
    assert state(world.run(5, board(45.0))) is Heat.COOL


def test_a_node_without_npu_is_no_node_of_ours() -> None:
    """An exporter that reports nothing is asked and leads to nothing."""
    world = _World()

    assert world.run(60, NodeSample()) is None
    assert world.asked


def test_a_node_without_exporter_is_not_looked_at() -> None:
    """Nothing of ours on it, nobody reports: not ours."""
    world = _World()
    world.pods = {}

    assert world.run(60, None) is None
    assert world.fleet.due(world.nodes, world.pods, world.now) == ([], {})


def test_a_record_is_adopted_with_its_time() -> None:
    """State and its beginning survive a restart; the next change has a time of its own."""
    world = _World(NodeRecord(name="n1", ready=True, annotations={ANNOTATION_STATE: HOT_RECORD}))

    status = world.run(30, board(60.0))
    assert (state(status), status and status.since) == (Heat.HOT, "earlier")
    # Third entry within an hour: held for 360 seconds.
    assert state(world.run(300, board(60.0))) is Heat.HOT
    left = world.run(100, board(60.0))

    assert state(left) is Heat.RECOVERING
    assert left is not None
    assert left.since.startswith("at ")


def test_a_taint_without_record_is_taken_for_hot() -> None:
    """What is not known may be hot."""
    world = _World(NodeRecord(name="n1", ready=True, taints=(HOT_TAINT,)))

    assert state(world.run(30, board(60.0))) is Heat.HOT


def test_a_taint_without_record_and_exporter_is_let_go_in_the_end() -> None:
    """A forgotten taint on a Ready node ends after half an hour."""
    world = _World(NodeRecord(name="n1", ready=True, taints=(HOT_TAINT,)))
    world.pods = {}

    assert world.run(1700, None) is None
    status = world.run(200, None)

    assert status is not None
    assert status.decision is not None
    assert status.decision.forget


def test_half_an_hour_without_exporter_begins_when_it_is_removed() -> None:
    """An exporter that failed for long and is then removed gets the full time to come back."""
    world = _World(NodeRecord(name="n1", ready=True, taints=(HOT_TAINT,)))
    world.run(2400, None)
    world.pods = {}

    assert world.run(1700, None) is None
    status = world.run(200, None)
    assert status is not None
    assert status.decision is not None
    assert status.decision.forget


def test_a_forgotten_node_is_dropped_once_it_is_clean() -> None:
    """After our marks are gone there is nothing to look after."""
    world = _World(NodeRecord(name="n1", ready=True, taints=(HOT_TAINT,)))
    world.pods = {}
    world.run(1900, None)

    world.nodes = {"n1": NodeRecord(name="n1", ready=True)}

    assert world.run(2, None) is None


def test_a_deleted_node_is_forgotten() -> None:
    """A node of the same name later is another one."""
    world = _World()
    world.run(30, board(45.0))
    world.nodes = {}
    world.run(1, None)
    world.nodes = {"n1": NodeRecord(name="n1", ready=True)}

    status = world.run(1, board(45.0))

    assert status is not None
    assert status.decision is None


def test_a_running_pod_is_preferred_to_an_ending_one() -> None:
    """During a roll-out two exporter Pods are bound to a node."""
    fleet = _World()
    fleet.pods = {
        "old": pod("n1", name="old", running=False),
        "new": pod("n1", name="new"),
        "z": pod("n1", name="z", running=False),
    }

    targets, known = fleet.fleet.due(fleet.nodes, fleet.pods, 2000.0)

    assert targets == [Target(node="n1", address="10.0.0.1")]
    assert known == {}


def test_trip_points_stay_when_a_page_lacks_them() -> None:
    """One page without trip points does not move the thresholds."""
    world = _World()
    trips = (Trip(zone="soc-thermal", kind="passive", celsius=75.0),)
    world.run(10, board(45.0, trips=trips))

    status = world.run(10, board(45.0))

    assert status is not None
    assert status.limits.hot_celsius == 70


def test_a_device_denied_for_half_an_hour_is_forgotten_unless_hot() -> None:
    """A removed card ends in peace; a hot one that vanished stays closed."""
    world = _World()
    world.run(30, board(45.0, "npu0", "npu1"))
    status = world.run(1900, board(45.0, "npu0"))
    assert status is not None
    assert status.decision is not None
    assert [d.device for d in status.decision.devices] == ["npu0"]

    hot = _World(NodeRecord(name="n1", ready=True, annotations={ANNOTATION_STATE: HOT_RECORD}))
    kept = hot.run(4000, board(45.0, "npu1"))
    assert kept is not None
    assert kept.decision is not None
    assert [d.device for d in kept.decision.devices] == ["npu0", "npu1"]


def test_hardware_without_a_driver_is_known() -> None:
    """A board whose NPU nobody drives has no status, and is still to be seen."""
    world = _World()
    status = world.run(30, NodeSample(hardware=("driver_not_bound",)))

    assert status is None
    assert world.fleet.undriven == {"n1": ("driver_not_bound",)}
    world.run(30, board(45.0))
    assert world.fleet.undriven == {}

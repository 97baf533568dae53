"""Publishing of devices: what is written when, against an API server that behaves like one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from tests.component.fake_apiserver import FakeApiServer, RefusedError, Seen
from thermal.dra.objects import Objects
from thermal.dra.offers import NodeOffer, OfferedDevice, OfferedDriver
from thermal.dra.publisher import GONE_SECONDS, INTERVAL_SECONDS, Publisher
from thermal.dra.slices import SLICES, SliceRecord, slice_record
from thermal.kube import Client
from thermal.objects import NodeRecord, PodRecord
from thermal.source import Failure, Target

DRIVER = OfferedDriver(
    name="npu.rockchip.com",
    registered=True,
    devices=(OfferedDevice(name="npu0", state="healthy", reason="ok"),),
)


@dataclass
class World:
    """Nodes, plugin Pods and their pages; slices are those of the API server."""

    server: FakeApiServer
    names: tuple[str, ...] = ("n1", "n2")
    drivers: dict[str, tuple[OfferedDriver, ...] | None] = field(default_factory=dict)
    pools: dict[str, str] = field(default_factory=dict)
    unready: set[str] = field(default_factory=set)
    moved: set[str] = field(default_factory=set)
    runtimes: dict[str, str] = field(default_factory=dict)
    term: int | None = 1
    now: float = 0.0
    asked: list[str] = field(default_factory=list)
    synced: bool = True
    slow: dict[str, NodeOffer | Failure] = field(default_factory=dict)
    lags: bool = False
    seen: tuple[int, dict[str, SliceRecord]] = field(default_factory=lambda: (0, {}))

    def nodes(self) -> dict[str, NodeRecord]:
        """Return the Nodes."""
        return {
            name: NodeRecord(
                name=name,
                uid=f"uid-{name}",
                ready=name not in self.unready,
                container_runtime=self.runtimes.get(name, "containerd://2.4.2"),
            )
            for name in self.names
        }

    def plugins(self) -> dict[str, PodRecord]:
        """Return a Pod for every node that has a page."""
        return {
            node: PodRecord(name=node, uid=node, node=node, address=node, running=True)
            for node in self.drivers
        }

    def counted(self) -> frozenset[str]:
        """Return the nodes that moved to the other mode."""
        return frozenset(self.moved)

    def slices(self) -> dict[str, SliceRecord]:
        """Return what is stored."""
        if self.seen[0] != self.server.version and not self.lags:
            records = [slice_record(item) for item in self.server.objects(SLICES)]
            self.seen = self.server.version, {record.name: record for record in records}
        return self.seen[1]

    def read(self, targets: list[Target]) -> Mapping[str, NodeOffer | Failure]:
        """Answer with the pages."""
        self.asked += [target.node for target in targets]
        found, self.slow = self.slow, {}
        for target in targets:
            drivers = self.drivers[target.node]
            found[target.node] = (
                Failure(reason="timeout")
                if drivers is None
                else NodeOffer(pool=self.pools.get(target.node, target.node), drivers=drivers)
            )
        return found


@pytest.fixture
def world(server: FakeApiServer) -> World:
    """Two nodes with a driver each."""
    return World(server=server, drivers={"n1": (DRIVER,), "n2": (DRIVER,)})


@pytest.fixture
def publisher(
    server: FakeApiServer, world: World, tmp_path_factory: pytest.TempPathFactory
) -> Publisher:
    """A publisher in that world."""
    file = tmp_path_factory.mktemp("kube") / "config"
    file.write_text(server.kubeconfig())
    return Publisher(
        Objects(Client.from_kubeconfig(file), kind="ResourceSlice", path=SLICES),
        view=world,
        pages=world,
        leadership=world,
        release="npu",
        monotonic=lambda: world.now,
    )


Turn = Callable[[float], list[str]]


@pytest.fixture
def turn(publisher: Publisher, world: World) -> Turn:
    """Let time pass and return what was written, as method and name."""

    def run(seconds: float) -> list[str]:
        before = len(world.server.writes())
        end = world.now + seconds
        while world.now < end:
            world.now += 1.0
            publisher.step()
        return [
            f"{seen.method} {seen.path.removeprefix(SLICES).strip('/')}".strip()
            for seen in world.server.writes()[before:]
        ]

    return run


def test_slices_are_made_kept_and_made_again(world: World, turn: Turn) -> None:
    """One write per slice; wiped ones come back, once their driver is registered."""
    assert sorted(turn(5)) == ["POST", "POST"]
    assert set(world.slices()) == {"n1-npu.rockchip.com", "n2-npu.rockchip.com"}
    assert turn(60) == []
    world.asked.clear()
    turn(INTERVAL_SECONDS * 3)
    assert world.asked.count("n1") == 3

    world.drivers["n1"] = (replace(DRIVER, registered=False),)
    turn(INTERVAL_SECONDS)
    world.server.delete(f"{SLICES}/n1-npu.rockchip.com")
    assert turn(30) == []
    world.drivers["n1"] = (DRIVER,)
    assert turn(30) == ["POST"]

    hot = OfferedDevice(name="npu0", state="withdrawn", reason="critical")
    world.drivers["n1"] = (OfferedDriver(name=DRIVER.name, registered=True, devices=(hot,)),)
    assert turn(30) == ["PATCH n1-npu.rockchip.com"]
    assert world.slices()["n1-npu.rockchip.com"].generation == 2


def test_a_pool_of_several_slices_is_written_as_one(world: World, turn: Turn) -> None:
    """However many are due: half a pool is of no use, and would be the last to be completed."""
    devices = tuple(
        OfferedDevice(name=f"npu0-s{number}", state="healthy", reason="ok") for number in range(130)
    )
    many = replace(DRIVER, devices=devices)
    world.names = tuple(f"n{number}" for number in range(8))
    world.drivers = dict.fromkeys(world.names, (many,))
    written: list[str] = []
    while len(written) < 24:
        more = turn(1)
        assert len(more) % 3 == 0
        written += more
    assert set(written) == {"POST"}
    assert {item.generation for item in world.slices().values()} == {1}

    hot = (replace(devices[0], state="withdrawn", reason="hot"), *devices[1:])
    world.drivers["n1"] = (replace(many, devices=hot),)
    names = [f"n1-npu.rockchip.com{tail}" for tail in ("", "-1", "-2")]
    assert turn(INTERVAL_SECONDS + 2) == [f"PATCH {name}" for name in names]
    assert [world.slices()[name].generation for name in names] == [2, 2, 2]


def test_silence_changes_nothing_and_absence_does(world: World, turn: Turn) -> None:
    """A board without power keeps its slice; a node that left the mode loses it."""
    turn(5)

    world.drivers["n1"] = None
    assert turn(200) == []
    del world.drivers["n1"]
    world.unready.add("n1")
    assert turn(200) == []
    world.unready.clear()
    assert turn(GONE_SECONDS - 5) == []
    assert turn(20) == ["DELETE n1-npu.rockchip.com"]
    world.drivers["n2"] = ()
    assert turn(20) == ["DELETE n2-npu.rockchip.com"]


def test_a_node_that_moved_to_the_other_mode_loses_its_slices_at_once(
    world: World, turn: Turn
) -> None:
    """The kubelet counts the NPU by then; no power is no reason to offer it twice."""
    turn(5)
    del world.drivers["n1"]
    world.moved.add("n1")
    assert turn(2) == ["DELETE n1-npu.rockchip.com"]
    del world.drivers["n2"]
    world.moved.add("n2")
    world.unready.add("n2")
    assert turn(2) == ["DELETE n2-npu.rockchip.com"]
    # And back again, as it is written by whoever serves then.
    world.moved.clear()
    world.drivers["n1"] = (DRIVER,)
    assert turn(5) == ["POST"]


def test_nodes_that_moved_do_not_wait_for_a_fleet(world: World, turn: Turn) -> None:
    """It is published for minutes; until a slice is gone its NPU is offered twice."""
    turn(5)
    world.names = tuple(f"n{number}" for number in range(1000))
    world.drivers = dict.fromkeys(world.names[3:], (DRIVER,))
    world.moved = {"n1", "n2"}
    written = turn(4)
    assert sorted(written[:2]) == ["DELETE n1-npu.rockchip.com", "DELETE n2-npu.rockchip.com"]
    assert set(written[2:]) == {"POST"}


def test_a_slice_is_deleted_once_however_late_that_is_seen(world: World, turn: Turn) -> None:
    """A watch may be interrupted for half a minute; others would wait behind writes in vain."""
    names = tuple(f"n{number}" for number in range(40))
    world.names, world.drivers = names, dict.fromkeys(names, (DRIVER,))
    turn(20)
    world.moved, world.lags = set(names), True
    world.names, world.drivers = (*names, "m1"), {"m1": (DRIVER,)}
    written = turn(20)
    assert sorted(written)[:40] == sorted(f"DELETE {name}-npu.rockchip.com" for name in names)
    assert set(written[40:]) == {"POST"}
    world.lags = False
    assert turn(10) == []


def test_slices_that_may_not_be_deleted_keep_nobody_waiting(world: World, turn: Turn) -> None:
    """A webhook refuses it; they are tried again now and then."""
    names = tuple(f"n{number}" for number in range(40))
    world.names, world.drivers = names, dict.fromkeys(names, (DRIVER,))
    turn(20)

    def refuse(seen: Seen) -> None:
        if seen.method == "DELETE":
            raise RefusedError(403, "denied the request")

    world.server.refuse = refuse
    world.moved = set(names)
    world.names, world.drivers = (*names, "m1"), {"m1": (DRIVER,)}
    written = turn(20)
    assert len(written) == 41
    assert "POST" in written
    world.server.refuse = lambda _seen: None
    assert len(turn(40)) == 40


def test_devices_that_nobody_can_get_are_told_once(
    world: World, turn: Turn, caplog: pytest.LogCaptureFixture
) -> None:
    """A slice has a limit, and whoever made so many slots does not see it."""
    world.drivers["n1"] = (replace(DRIVER, left_out=16),)
    turn(60)
    assert caplog.text.count("No more devices") == 1


def test_what_no_container_would_be_given_is_not_published(
    world: World, turn: Turn, caplog: pytest.LogCaptureFixture
) -> None:
    """A runtime without CDI starts Pods without their NPU; it is told once, until it is another."""
    world.runtimes["n1"] = "containerd://1.6.20"
    assert turn(30) == ["POST"]
    assert set(world.slices()) == {"n2-npu.rockchip.com"}
    told = [record for record in caplog.records if "knows no CDI" in record.getMessage()]
    assert len(told) == 1
    world.runtimes["n1"] = "containerd://2.4.2"
    assert turn(30) == ["POST"]
    world.runtimes["n1"] = "containerd://1.6.20"
    assert turn(GONE_SECONDS + 5) == ["DELETE n1-npu.rockchip.com"]


def test_page_that_cannot_be_read_is_told_where_nothing_is_published(
    world: World, turn: Turn, caplog: pytest.LogCaptureFixture
) -> None:
    """A network policy in the way, or NODE_NAME of another node, would be a riddle."""
    world.drivers["n1"] = None
    world.pools["n2"] = "n3"
    turn(60)
    told = [
        (record.fields["node"], record.fields["reason"])  # type: ignore[attr-defined]
        for record in caplog.records
        if "cannot be read" in record.message
    ]
    assert sorted(told) == [("n1", "timeout"), ("n2", "pool")]
    world.drivers["n1"] = (DRIVER,)
    turn(20)
    caplog.clear()
    world.drivers["n1"] = None
    turn(60)
    assert caplog.records == []


def test_what_was_told_is_forgotten_with_its_node(
    world: World, turn: Turn, caplog: pytest.LogCaptureFixture
) -> None:
    """A board that comes back under the same name is another one."""
    for times in (1, 2):
        world.names, world.drivers = (
            ("n1", "n2"),
            {"n1": None, "n2": (replace(DRIVER, left_out=1),)},
        )
        turn(30)
        assert caplog.text.count("cannot be read") == times
        assert caplog.text.count("No more devices") == times
        world.names, world.drivers = (), {}
        turn(2)
        for name in world.slices():
            world.server.delete(f"{SLICES}/{name}")


def test_page_of_a_plugin_that_is_gone_comes_too_late(world: World, turn: Turn) -> None:
    """A slow plugin's answer is handed out by a later read; its Pod, and its Node, may be gone."""
    turn(5)
    world.names, world.slow = ("n1",), {"n2": NodeOffer(pool="n2", drivers=(DRIVER,))}
    del world.drivers["n2"]
    assert turn(5) == []


def test_only_the_leader_writes_and_a_refusal_is_no_loop(world: World, turn: Turn) -> None:
    """A standby asks nobody; a refused slice is tried again now and then."""
    world.term = None
    assert (turn(20), world.asked) == ([], [])
    world.term = 2

    def refuse(seen: Seen) -> None:
        if seen.writes:
            raise RefusedError(422, "invalid")

    world.server.refuse = refuse
    assert 2 <= len(turn(30)) <= 8


def test_a_thousand_nodes_are_written_at_a_pace(
    server: FakeApiServer, world: World, turn: Turn
) -> None:
    """Ten writes a second at most, however many slices are missing."""
    world.names = tuple(f"n{number}" for number in range(1000))
    world.drivers = dict.fromkeys(world.names, (DRIVER,))

    assert len(turn(10)) <= 110
    turn(120)

    assert len(world.slices()) == 1000

"""The guard in hard times: conflicts, kills in the middle of a write, outages, many hot at once."""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.component.fake_apiserver import FakeApiServer, Json, RefusedError, Seen
from tests.component.thermal.guard_rig import Board, Rig, client_of, condition, hot_taint
from thermal.budget import Budget
from thermal.config import Config
from thermal.lease import Elector

FOREIGN = {"key": "foreign", "value": "v", "effect": "NoSchedule"}


class KilledError(BaseException):
    """The process ends here."""


@pytest.fixture
def boards() -> dict[str, Board]:
    """Give both nodes a cool board."""
    return {"n1": Board(), "n2": Board()}


def node_patches(server: FakeApiServer) -> list[Seen]:
    return [seen for seen in server.writes() if seen.method == "PATCH"]


def foreign_taints(node: Json) -> list[Json]:
    return [taint for taint in node["spec"].get("taints", []) if "thermal" not in taint["key"]]


def test_a_writer_that_is_always_faster_loses_nothing_and_delays_nobody(
    server: FakeApiServer, boards: dict[str, Board]
) -> None:
    """One node changes before each of our writes: five tries, then the others' turn, then again."""
    rig = Rig(server, boards, config=Config(budget=Budget(nodes_ratio=1.0))).run(20)
    serial = 0

    def storm(seen: Seen) -> None:
        nonlocal serial
        if seen.path == "/api/v1/nodes/n1":
            serial += 1
            other = {"key": f"other-{serial}", "effect": "PreferNoSchedule"}
            server.edit_node("n1", lambda node: node["spec"]["taints"].append(other))

    server.between = storm
    for board in boards.values():
        board.celsius = 66.0
    rig.run(20)
    for board in boards.values():
        board.celsius = 83.0
    before = len(node_patches(server))
    rig.run(60)

    tried = [s for s in node_patches(server)[before:] if s.path == "/api/v1/nodes/n1"]
    assert hot_taint(server.node("n2")) is not None
    assert hot_taint(server.node("n1")) is None
    assert len(tried) <= 5 * 4, "not more than five tries each half minute"
    assert len(foreign_taints(server.node("n1"))) == serial + 1

    server.between = lambda _seen: None
    rig.run(40)
    assert hot_taint(server.node("n1")) is not None
    assert len(foreign_taints(server.node("n1"))) == serial + 1


def die(rig: Rig, monkeypatch: pytest.MonkeyPatch, *, at: int, stored: bool) -> None:
    """Let the process end at its n-th write, before or after the server stored it."""
    count = 0
    real: dict[str, Callable[..., Json]] = {"patch": rig.client.patch, "create": rig.client.create}

    def dying(name: str) -> Callable[..., Json]:
        def call(*arguments: object, **named: object) -> Json:
            nonlocal count
            count += 1
            if count == at and not stored:
                raise KilledError
            answer = real[name](*arguments, **named)
            if count == at:
                raise KilledError
            return answer

        return call

    for name in real:
        monkeypatch.setattr(rig.client, name, dying(name))


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_killed_at_a_step_of_a_write_another_guard_completes_it(
    server: FakeApiServer,
    boards: dict[str, Board],
    monkeypatch: pytest.MonkeyPatch,
    at: int,
    *,
    stored: bool,
) -> None:
    """Taint, condition, Event: wherever the first one dies, heating or cooling, all ends right."""
    rig = Rig(server, boards).run(20)
    boards["n1"].celsius = 66.0
    rig.run(20)
    with monkeypatch.context() as patched:
        die(rig, patched, at=at, stored=stored)
        boards["n1"].celsius = 83.0
        with pytest.raises(KilledError):
            rig.run(60)

    heir = Rig(server, boards, now=rig.now).run(40)
    node = server.node("n1")
    assert hot_taint(node) is not None
    assert foreign_taints(node) == [FOREIGN]
    assert (condition(node) or {})["status"] == "True"

    with monkeypatch.context() as patched:
        die(heir, patched, at=at, stored=stored)
        boards["n1"].celsius = 45.0
        with pytest.raises(KilledError):
            heir.run(1200)

    Rig(server, boards, now=heir.now).run(900)
    node = server.node("n1")
    assert node["spec"]["taints"] == [FOREIGN]
    assert (condition(node) or {})["status"] == "False"


def test_a_deposed_leader_cannot_overwrite_its_successor(
    server: FakeApiServer, boards: dict[str, Board]
) -> None:
    """The version fences: what was read before the successor wrote is refused, not stored."""
    rig = Rig(server, boards).run(20)
    done = False

    def take_over(seen: Seen) -> None:
        nonlocal done
        if seen.path == "/api/v1/nodes/n1" and not done:
            done = True
            rig.leadership.term = None
            server.edit_node("n1", lambda node: node["metadata"]["labels"].update(heir="was-here"))

    server.between = take_over
    rig.heat("n1")

    assert done
    assert hot_taint(server.node("n1")) is None
    assert server.node("n1")["metadata"]["labels"]["heir"] == "was-here"


class _Led:
    """A rig whose leadership is won by a real Lease on the same clock."""

    def __init__(self, server: FakeApiServer, rig: Rig) -> None:
        self.rig = rig
        self._elector = Elector(
            client_of(server),
            namespace="npu",
            name="guard",
            identity="a",
            monotonic=lambda: rig.now,
        )

    def run(self, seconds: int) -> None:
        for second in range(seconds):
            if second % 2 == 0:
                self._elector.step()
            self.rig.leadership.term = self._elector.term
            self.rig.run(1)


def test_ten_minutes_without_api_server(server: FakeApiServer, boards: dict[str, Board]) -> None:
    """A hot node stays closed and untouched, one that heats meanwhile is closed soon after."""
    rig = Rig(server, boards, config=Config(budget=Budget(nodes_ratio=1.0)))
    led = _Led(server, rig)
    led.run(20)
    boards["n1"].celsius = 66.0
    led.run(20)
    boards["n1"].celsius = 83.0
    led.run(60)
    assert hot_taint(server.node("n1")) is not None
    taints = server.node("n1")["spec"]["taints"]

    def away(_seen: Seen) -> None:
        raise RefusedError(503, "away")

    server.refuse = away
    led.run(60)
    assert rig.leadership.term is None
    boards["n2"].celsius = 66.0
    led.run(30)
    boards["n2"].celsius = 84.0
    led.run(510)
    tried = len(server.requests)
    led.run(60)
    assert len(server.requests) - tried <= 31, "one look at the Lease each two seconds, no more"

    server.refuse = lambda _seen: None
    before = len(node_patches(server))
    led.run(45)

    assert hot_taint(server.node("n2")) is not None
    assert server.node("n1")["spec"]["taints"] == taints
    touched = [s for s in node_patches(server)[before:] if s.path == "/api/v1/nodes/n1"]
    assert not any("spec" in (seen.body or {}) for seen in touched)


def test_a_wave_of_heat_is_written_taints_first_at_ten_a_second(server: FakeApiServer) -> None:
    """Every patch counts, conditions too; they wait until the last taint is there."""
    names = [f"m{index:02}" for index in range(60)]
    for index, name in enumerate(names):
        server.add_node(name)
        server.add_exporter(name, f"127.0.1.{index}")
    boards = {name: Board() for name in ["n1", "n2", *names]}
    rig = Rig(server, boards).run(60)
    seconds: Counter[int] = Counter()
    order: list[str] = []

    def note(seen: Seen) -> None:
        if seen.method == "PATCH":
            seconds[int(rig.now)] += 1
            order.append("taint" if "spec" in (seen.body or {}) else seen.path.rsplit("/", 1)[1])

    for name in names:
        boards[name].celsius = 66.0
    rig.run(20)
    server.refuse = note
    for name in names:
        boards[name].celsius = 83.0
    rig.run(60)

    first, last = min(seconds), max(seconds)
    assert sum(seconds.values()) <= 10 * (last - first + 2)
    assert max(seconds.values()) <= 11
    closed = [index for index, what in enumerate(order) if what == "taint"]
    conditions = [index for index, what in enumerate(order) if what == "status"]
    assert len(closed) == len(conditions) == 60
    assert sum(index < closed[-11] for index in conditions) == 0

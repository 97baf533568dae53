"""Clean-up: ours goes, foreign stays, failures are told."""

import pytest

from tests.component.fake_apiserver import FakeApiServer, RefusedError, Seen
from tests.component.thermal.guard_rig import Board, Rig, client_of, condition
from thermal.api import NODES
from thermal.cleanup import clean, wait_for_pods
from thermal.names import OVERRIDE

FOREIGN = {"key": "foreign", "value": "v", "effect": "NoSchedule"}


@pytest.fixture
def dirty(server: FakeApiServer) -> FakeApiServer:
    """Leave what a guard leaves: n1 hot, n2 cool, a person's override on n1."""
    Rig(server, {"n1": Board(), "n2": Board()}).run(30).heat("n1")
    node = server.node("n1")
    node["metadata"]["annotations"][OVERRIDE] = "observe"
    server.put(f"{NODES}/n1", node)
    return server


def no_sleep(_seconds: float) -> None:
    return


def test_nothing_of_ours_is_left(dirty: FakeApiServer) -> None:
    """Taint, labels, records and condition go; everything else is as it was."""
    report = clean(client_of(dirty))

    assert (report.changed, report.failed) == (("n1", "n2"), ())
    node = dirty.node("n1")
    assert node["spec"]["taints"] == [FOREIGN]
    assert node["metadata"]["labels"] == {"a": "b"}
    assert node["metadata"]["annotations"] == {OVERRIDE: "observe"}
    assert condition(node) is None
    assert [c["type"] for c in node["status"]["conditions"]] == ["Ready"]


def test_a_second_run_writes_nothing(dirty: FakeApiServer) -> None:
    """Clean-up is idempotent."""
    clean(client_of(dirty))
    before = len(dirty.writes())

    report = clean(client_of(dirty))

    assert (report.changed, report.failed) == ((), ())
    assert len(dirty.writes()) == before


def test_conflicts_are_tried_again(dirty: FakeApiServer) -> None:
    """A writer in between costs one more attempt, and its taint survives."""
    done: list[bool] = []

    def taint(seen: Seen) -> None:
        if not done and seen.path == f"{NODES}/n1":
            done.append(True)
            node = dirty.node("n1")
            node["spec"]["taints"].append({"key": "z", "effect": "NoSchedule"})
            dirty.put(f"{NODES}/n1", node)

    dirty.between = taint
    clean(client_of(dirty), sleep=no_sleep)

    assert [t["key"] for t in dirty.node("n1")["spec"]["taints"]] == ["foreign", "z"]


def test_one_failing_node_does_not_stop_the_rest(dirty: FakeApiServer) -> None:
    """It is reported by name."""

    def refuse(seen: Seen) -> None:
        if seen.path.startswith(f"{NODES}/n1") and seen.method == "PATCH":
            raise RefusedError(403, "no")

    dirty.refuse = refuse
    report = clean(client_of(dirty))

    assert (report.changed, report.failed) == (("n2",), ("n1",))


def test_stale_capacity_is_removed_on_request(server: FakeApiServer) -> None:
    """A count of zero goes, one above zero belongs to a running plugin."""
    for name, count in (("n1", "0"), ("n2", "1")):
        node = server.node(name)
        node["status"]["capacity"] = {"cpu": "4", "rockchip.com/npu": count}
        node["status"]["allocatable"] = {"cpu": "4", "rockchip.com/npu": count}
        server.put(f"{NODES}/{name}", node)

    untouched = clean(client_of(server))
    report = clean(client_of(server), capacity=True)

    assert untouched.changed == ()
    assert report.changed == ("n1",)
    assert server.node("n1")["status"]["capacity"] == {"cpu": "4"}
    assert server.node("n1")["status"]["allocatable"] == {"cpu": "4"}
    assert server.node("n2")["status"]["capacity"]["rockchip.com/npu"] == "1"


def test_it_waits_for_the_guard_to_end(server: FakeApiServer) -> None:
    """Pods that match are waited for, up to the limit."""
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        if clock[0] > 10:
            for name in ("n1", "n2"):
                server.delete(f"/api/v1/namespaces/npu/pods/exporter-{name}")

    def wait(limit: float) -> bool:
        return wait_for_pods(
            client_of(server),
            namespace="npu",
            selector="a=b",
            timeout_seconds=limit,
            monotonic=lambda: clock[0],
            sleep=sleep,
        )

    assert wait(5) is False
    assert wait(60) is True
    assert server.requests[0].query["labelSelector"] == "a=b"

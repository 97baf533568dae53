"""The cache: follows changes, relists when history is gone, survives a mute server."""

import time
from collections.abc import Callable, Iterator

import pytest

from daemon.backoff import Backoff
from tests.component.fake_apiserver import FakeApiServer, RefusedError, Seen
from tests.component.thermal.guard_rig import client_of
from thermal.api import NODES
from thermal.kube import Limits
from thermal.objects import NodeRecord, node_record
from thermal.watch import Cache


def until(true: Callable[[], bool]) -> None:
    """Wait until something holds; the time limit of the test is the limit."""
    while not true():
        time.sleep(0.02)


@pytest.fixture
def cache(server: FakeApiServer) -> Iterator[Cache[NodeRecord]]:
    """Follow the fake server's Nodes."""
    made = Cache(
        client_of(server),
        NODES,
        node_record,
        backoff=Backoff(first_seconds=0.05, ceiling_seconds=0.1),
    )
    made.start()
    until(lambda: made.synced)
    yield made
    made.stop()


def test_changes_arrive(server: FakeApiServer, cache: Cache[NodeRecord]) -> None:
    """Added, changed and deleted nodes show without another list."""
    server.add_node("n3")
    until(lambda: "n3" in cache.records())
    server.add_node("n3", taints=[{"key": "x", "effect": "NoSchedule"}])
    until(lambda: bool(cache.records()["n3"].taints))
    server.delete(f"{NODES}/n3")
    until(lambda: "n3" not in cache.records())

    assert sum(seen.path == NODES and "watch" not in seen.query for seen in server.requests) == 1


def test_lost_history_means_a_new_list(server: FakeApiServer, cache: Cache[NodeRecord]) -> None:
    """410 in an open watch: list again, and what happened meanwhile is there."""
    server.forget_history()
    server.add_node("n4")

    until(lambda: "n4" in cache.records())

    assert sum(seen.path == NODES and "watch" not in seen.query for seen in server.requests) >= 2


def test_records_stay_while_the_server_is_away(
    server: FakeApiServer, cache: Cache[NodeRecord]
) -> None:
    """An unavailable server empties nothing; afterwards the cache catches up."""

    def away(_seen: Seen) -> None:
        raise RefusedError(503, "away")

    server.refuse = away
    server.forget_history()
    seen = len(server.requests)
    until(lambda: len(server.requests) > seen + 2)

    assert set(cache.records()) == {"n1", "n2"}
    server.refuse = lambda _seen: None
    server.add_node("n5")
    until(lambda: "n5" in cache.records())


def test_a_mute_watch_can_be_stopped(server: FakeApiServer, cache: Cache[NodeRecord]) -> None:
    """Stopping does not wait for the server."""
    server.mute.set()
    started = time.monotonic()

    cache.stop()

    assert time.monotonic() - started < 3


def test_a_bookmark_saves_a_list(server: FakeApiServer, cache: Cache[NodeRecord]) -> None:
    """The history before a bookmark may go: the next watch begins at the bookmark."""
    server.bookmark(NODES)
    server.add_node("n6")
    until(lambda: "n6" in cache.records())

    assert sum(seen.path == NODES and "watch" not in seen.query for seen in server.requests) == 1


def test_a_silent_watch_is_noticed(server: FakeApiServer) -> None:
    """A connection that died without a word is opened again, and what happened is seen."""
    client = client_of(server, Limits(stall_seconds=0.2))
    cache = Cache(client, NODES, node_record, watch_seconds=1)
    cache.start()
    try:
        until(lambda: cache.synced and _watches(server) == 1)
        server.stall.set()
        server.add_node("n7")
        until(lambda: _watches(server) > 1)
        assert "n7" not in cache.records()
        server.stall.clear()
        until(lambda: "n7" in cache.records())
    finally:
        cache.stop()


def _watches(server: FakeApiServer) -> int:
    return sum("watch" in seen.query for seen in server.requests)

"""Scraping exporters that are fine, slow, dead or hostile."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from thermal.readings import NodeSample
from thermal.scrape import PAGE_LIMIT_BYTES, Scraper
from thermal.source import Failure, Result, Target

PAGE = (
    b'npu_info{device="npu0",vendor="rockchip",model="rk3588"} 1\n'
    b'npu_temperature_celsius{device="npu0",zone="npu-thermal"} 50\n'
)
Script = Callable[[socket.socket], None]


def send(content: bytes) -> Script:
    def script(connection: socket.socket) -> None:
        connection.sendall(content)

    return script


def ok(body: bytes) -> Script:
    return send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" + body)


def endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"x" * 65536)


class _Node:
    """A server that runs ``script`` for every connection."""

    def __init__(self) -> None:
        self.script: Script = ok(PAGE)
        self.asked: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        try:
            with connection:
                self.asked.append(connection.recv(4096))
                self.script(connection)
        except OSError:
            return

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def node() -> Iterator[_Node]:
    """Run one exporter."""
    made = _Node()
    yield made
    made.close()


def read(node: _Node, *, timeout_seconds: float = 5.0) -> Result:
    scraper = Scraper(port=node.port, timeout_seconds=timeout_seconds)
    return scraper.read([Target(node="n1", address="127.0.0.1")])["n1"]


def failure(result: Result) -> str:
    assert isinstance(result, Failure)
    return result.reason


def test_a_page_is_read_and_only_what_is_needed_is_asked_for(node: _Node) -> None:
    """The request filters by name, so that little travels."""
    result = read(node)

    assert isinstance(result, NodeSample)
    assert result.devices[0].celsius == 50
    assert b"name%5B%5D=npu_temperature_celsius" in node.asked[0]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (send(b"HTTP/1.1 503 Service Unavailable\r\n\r\n"), "http"),
        (send(b"SSH-2.0-OpenSSH\r\n"), "http"),
        (send(b""), "http"),
        (endless, "too_large"),
    ],
)
def test_what_is_no_page_is_a_failure(node: _Node, script: Script, reason: str) -> None:
    """Refusals, other protocols and endless pages end in a reason, never in a reading."""
    node.script = script

    assert failure(read(node)) == reason


def test_a_silent_node_costs_the_time_limit(node: _Node) -> None:
    """A node that accepts and says nothing is a time-out."""
    stop = threading.Event()

    def silent(_connection: socket.socket) -> None:
        stop.wait(20)

    node.script = silent

    assert failure(read(node, timeout_seconds=0.2)) == "timeout"
    stop.set()


def test_a_dead_node_is_a_failure_of_its_own(node: _Node) -> None:
    """One refused connection does not keep the others from being read."""
    scraper = Scraper(port=node.port, timeout_seconds=2)

    results = scraper.read(
        [Target(node="n1", address="127.0.0.1"), Target(node="n2", address="127.0.0.9")]
    )

    assert isinstance(results["n1"], NodeSample)
    assert failure(results["n2"]) == "connect"


def test_a_large_hostile_page_is_bounded(node: _Node) -> None:
    """Garbage up to the limit is read, counted and left out."""
    line = b'npu_temperature_celsius{device="npu0"} \xff\n'
    node.script = ok((PAGE + line * (PAGE_LIMIT_BYTES // len(line)))[: PAGE_LIMIT_BYTES - 200])

    result = read(node)

    assert isinstance(result, NodeSample)
    assert result.devices[0].celsius == 50
    assert result.malformed > 1000


def test_a_silent_node_delays_nobody(node: _Node) -> None:
    """Its result comes with a later read; until then it is not asked again."""
    stop = threading.Event()

    def silence(_connection: socket.socket) -> None:
        stop.wait(20)

    node.script = silence
    silent, dead = Target(node="n1", address="127.0.0.1"), Target(node="n2", address="127.0.0.9")
    scraper = Scraper(port=node.port, timeout_seconds=0.5, patience_seconds=0.2)

    results = scraper.read([silent, dead])
    assert set(results) == {"n2"}
    while "n1" not in (results := scraper.read([silent, dead])):
        assert failure(results["n2"]) == "connect"
    assert failure(results["n1"]) == "timeout"
    assert len(node.asked) == 1
    stop.set()

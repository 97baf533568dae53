"""Clients that dawdle, come in crowds or have no certificate."""

import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from npu import catalogue
from npu.layout import expand
from npu.tree import materialise
from tests.component.exporter.exporter_process import ExporterProcess

SLOW_CLIENTS = 100
SCRAPES = 20


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """An RK3588 board."""
    directory = tmp_path / "board"
    materialise(expand(catalogue.load("rk3588")), directory, device_nodes=False)
    return directory


@dataclass(frozen=True, slots=True)
class Papers:
    """An authority, and what it signed for the server and for a client."""

    folder: Path

    def path(self, name: str) -> str:
        """Return the path of a file."""
        return str(self.folder / name)

    @property
    def options(self) -> tuple[str, ...]:
        """Return the exporter's options."""
        return (
            f"--tls-cert-file={self.path('server.pem')}",
            f"--tls-key-file={self.path('server.key')}",
            f"--tls-client-ca-file={self.path('ca.pem')}",
        )

    def context(self, *, with_certificate: bool) -> ssl.SSLContext:
        """Return what a client uses."""
        made = ssl.create_default_context(cafile=self.path("ca.pem"))
        if with_certificate:
            made.load_cert_chain(self.path("client.pem"), self.path("client.key"))
        return made


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    """Certificates made by openssl."""
    folder = tmp_path_factory.mktemp("papers")

    def make(name: str, *extra: str) -> None:
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-nodes"),
                *("-pkeyopt", "ec_paramgen_curve:P-256", "-subj", f"/CN={name}"),
                *("-keyout", f"{name}.key", "-out", f"{name}.pem", *extra),
            ],
            cwd=folder,
            check=True,
            capture_output=True,
        )

    make("ca")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "basicConstraints=critical,CA:false")
    make("server", *signed, "-addext", "subjectAltName=IP:127.0.0.1")
    make("client", *signed)
    return Papers(folder)


@pytest.fixture
def slow() -> Iterator[ExitStack]:
    """Holds connections and closes them."""
    with ExitStack() as stack:
        yield stack


def connected(stack: ExitStack, port: int, sent: bytes) -> socket.socket:
    """Return a client that has sent this and says no more."""
    client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
    if sent:
        client.sendall(sent)
    client.settimeout(0)
    return client


def waiting(client: socket.socket) -> bool:
    """Tell whether the server still holds the connection and has answered nothing."""
    try:
        client.recv(1)
    except BlockingIOError:
        return True
    return False


def test_slow_clients_delay_no_scrape(tmp_path: Path, board: Path, slow: ExitStack) -> None:
    """Twenty scrapes are through before the first of a hundred slow clients is given up."""
    exporter = ExporterProcess(tmp_path, board, "")
    try:
        port = exporter.port()
        clients = [
            connected(slow, port, b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: "[: number % 40])
            for number in range(SLOW_CLIENTS)
        ]
        for _ in range(SCRAPES):
            status, body, _ = exporter.get("/metrics")
            assert status == 200
            assert b"npu_info" in body
        assert sum(map(waiting, clients)) == SLOW_CLIENTS
    finally:
        exporter.end()


def test_idle_tls_client_delays_no_scrape_and_strangers_get_none(
    tmp_path: Path, board: Path, papers: Papers, slow: ExitStack
) -> None:
    """A handshake that never begins holds its own thread only; the certificate is asked for."""
    exporter = ExporterProcess(tmp_path, board, "", *papers.options)
    try:
        port = exporter.port()
        url = f"https://127.0.0.1:{port}/metrics"
        idle = connected(slow, port, b"")
        half = connected(slow, port, b"\x16\x03\x01")
        with urllib.request.urlopen(
            url, timeout=30, context=papers.context(with_certificate=True)
        ) as answer:
            assert b"npu_info" in answer.read()
        assert waiting(idle)
        assert waiting(half)
        with pytest.raises(OSError, match=r"certificate required|reset|closed|EOF"):
            urllib.request.urlopen(url, timeout=30, context=papers.context(with_certificate=False))
    finally:
        exporter.end()

"""Clients that dawdle, come in crowds or have no certificate."""

import http.client
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from daemon.tls import ClientTls, Renewing
from npu import catalogue
from npu.layout import expand
from npu.tree import materialise
from tests.component.exporter.exporter_process import ExporterProcess
from thermal.readings import NodeSample
from thermal.scrape import Scraper
from thermal.source import Failure, Target

SLOW_CLIENTS = 100
SCRAPES = 20
SERVER_NAME = "npu-platform-exporter"


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

    def issue(self, name: str, *, by: str = "", alternative: str = "") -> None:
        """Make a certificate, signed by an authority or by itself."""
        extra: list[str] = []
        if by:
            extra = ["-CA", f"{by}.pem", "-CAkey", f"{by}.key"]
            extra += ["-addext", "basicConstraints=critical,CA:false"]
        if alternative:
            extra += ["-addext", f"subjectAltName={alternative}"]
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-nodes"),
                *("-pkeyopt", "ec_paramgen_curve:P-256", "-subj", f"/CN={name}"),
                *("-keyout", f"{name}.key", "-out", f"{name}.pem", *extra),
            ],
            cwd=self.folder,
            check=True,
            capture_output=True,
        )


@pytest.fixture
def papers(tmp_path: Path) -> Papers:
    """Certificates made by openssl: of this authority, and of a stranger's."""
    folder = tmp_path / "papers"
    folder.mkdir()
    made = Papers(folder)
    made.issue("ca")
    made.issue("server", by="ca", alternative=f"IP:127.0.0.1,DNS:{SERVER_NAME}")
    made.issue("client", by="ca")
    made.issue("elsewhere")
    made.issue("stranger", by="elsewhere")
    return made


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


def asked(port: int, path: str, context: ssl.SSLContext) -> tuple[int, bytes]:
    """Return status and body of a page by TLS."""
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_idle_tls_client_delays_no_scrape_and_strangers_get_none(
    tmp_path: Path, board: Path, papers: Papers, slow: ExitStack
) -> None:
    """A handshake that never begins holds its own thread only; the certificate is asked for.

    The kubelet has none, so what it probes is for everybody, and nothing else is.
    """
    exporter = ExporterProcess(tmp_path, board, "", *papers.options)
    try:
        port = exporter.port()
        idle = connected(slow, port, b"")
        half = connected(slow, port, b"\x16\x03\x01")
        status, body = asked(port, "/metrics", papers.context(with_certificate=True))
        assert status == 200
        assert b"npu_info" in body
        assert waiting(idle)
        assert waiting(half)

        without = papers.context(with_certificate=False)
        assert asked(port, "/healthz", without)[0] == 200
        assert asked(port, "/readyz", without)[0] in {200, 503}
        for path in ("/metrics", "/", "/nowhere", "/healthz/../metrics", "//metrics"):
            status, body = asked(port, path, without)
            assert (status, body) == (403, b"this page is for clients with a certificate\n")

        stranger = papers.context(with_certificate=False)
        stranger.load_cert_chain(papers.path("stranger.pem"), papers.path("stranger.key"))
        with pytest.raises(OSError, match=r"unknown ca|reset|closed|EOF"):
            asked(port, "/healthz", stranger)
    finally:
        exporter.end()


def test_renewed_certificate_counts_without_a_restart(
    tmp_path: Path, board: Path, papers: Papers
) -> None:
    """Certificates end long before an exporter does; a broken one is not used."""
    exporter = ExporterProcess(tmp_path, board, "", *papers.options)

    def serial() -> bytes:
        context = papers.context(with_certificate=True)
        with (
            socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
            context.wrap_socket(plain, server_hostname=SERVER_NAME) as client,
        ):
            return client.getpeercert(binary_form=True) or b""

    try:
        port = exporter.port()
        first = serial()
        assert serial() == first
        (papers.folder / "server.pem").write_text("half written")
        assert serial() == first
        papers.issue("server", by="ca", alternative=f"IP:127.0.0.1,DNS:{SERVER_NAME}")
        renewed = serial()
        assert renewed
        assert renewed != first
        said = [record["message"] for record in exporter.records()]
        assert said.count("A renewed certificate cannot be used, the last one is") == 1
        assert said.count("Certificates were renewed") == 1
    finally:
        exporter.end()


def test_guard_reads_exporters_by_tls(tmp_path: Path, board: Path, papers: Papers) -> None:
    """By the authority and the one name that all exporters have; with no certificate it fails."""
    exporter = ExporterProcess(tmp_path, board, "", *papers.options)
    own = {"certificate": papers.path("client.pem"), "key": papers.path("client.key")}
    try:
        port = exporter.port()

        def read(server_name: str, ca: str, **shown: str) -> NodeSample | Failure:
            tls = Renewing(ClientTls(ca=papers.path(ca), **shown))
            scraper = Scraper(port=port, timeout_seconds=20, tls=tls, server_name=server_name)
            return scraper.read([Target(node="n1", address="127.0.0.1")])["n1"]

        sample = read(SERVER_NAME, "ca.pem", **own)
        assert isinstance(sample, NodeSample), sample
        assert sample.devices

        for failed, reason in (
            (read("another-name", "ca.pem", **own), "connect"),
            (read(SERVER_NAME, "elsewhere.pem", **own), "connect"),
            (read(SERVER_NAME, "ca.pem"), "http"),
        ):
            assert isinstance(failed, Failure), failed
            assert failed.reason == reason, failed
        plain = Scraper(port=port, timeout_seconds=20).read([Target(node="n", address="127.0.0.1")])
        assert isinstance(plain["n"], Failure)
    finally:
        exporter.end()


def test_node_that_hangs_after_the_handshake_costs_the_time_limit(papers: Papers) -> None:
    """Its connection is left without a farewell, for which TLS would wait half a minute."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(papers.path("server.pem"), papers.path("server.key"))
    tls = Renewing(ClientTls(ca=papers.path("ca.pem")))
    shaken, release = threading.Event(), threading.Event()

    def hang(listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        with accepted, context.wrap_socket(accepted, server_side=True):
            shaken.set()
            release.wait(60)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=hang, args=(listener,), daemon=True)
        server.start()
        port = listener.getsockname()[1]
        scraper = Scraper(port=port, timeout_seconds=3, tls=tls, server_name=SERVER_NAME)
        began = time.monotonic()
        failed = scraper.read([Target(node="n1", address="127.0.0.1")])["n1"]
        took = time.monotonic() - began
        release.set()
        server.join(10)

    assert shaken.is_set()
    assert isinstance(failed, Failure), failed
    assert failed.reason == "timeout"
    assert took < 15

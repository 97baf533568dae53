"""The HTTP server answers probes and pages and survives bad clients."""

import contextlib
import gzip
import http.client
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.http import HttpServer, Request, Response, TlsFiles, parse_bind, text
from daemon.probes import liveness, probe


def _boom(_request: Request) -> Response:
    raise ValueError("page is broken")


@contextlib.contextmanager
def _serving(server: HttpServer) -> Iterator[HttpServer]:
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _get(port: int, path: str, **headers: str) -> tuple[int, bytes, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body, answer.headers


def test_idle_connections_are_bounded() -> None:
    """Clients that say nothing cost threads: one too many is closed, and the others stay."""
    with (
        _serving(HttpServer("127.0.0.1:0", {}, connections=2)) as server,
        contextlib.ExitStack() as stack,
    ):
        address = ("127.0.0.1", server.port)
        first, _, last = [
            stack.enter_context(socket.create_connection(address, timeout=5)) for _ in range(3)
        ]
        assert last.recv(1) == b""
        first.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert first.makefile("rb").read().startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize("target", ["http://[/echo", "/echo?" + "&".join(["a=1"] * 201)])
def test_target_that_cannot_be_read_is_a_bad_request(target: str) -> None:
    """A client that errs gets an answer, not a closed connection."""
    routes = {"/echo": lambda _request: text("ok")}
    with (
        _serving(HttpServer("127.0.0.1:0", routes)) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as client,
    ):
        client.sendall(f"GET {target} HTTP/1.0\r\n\r\n".encode())
        answer = client.makefile("rb").readline()

    assert answer.split()[1] == b"400"


def test_wildcard_address_in_use_is_an_error() -> None:
    """Half an address, IPv4 without IPv6, would hide that another program answers the other."""
    with socket.create_server(("::", 0), family=socket.AF_INET6) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=f"in use.*{port}"):
            HttpServer(f"[::]:{port}", {}).start()


def test_routes_probes_and_errors() -> None:
    """Known paths answer, unknown ones list the known, a broken page is a 500 and no crash."""
    seen: list[int] = []
    routes = {
        "/healthz": liveness(lambda: ["sampler"]),
        "/readyz": probe(list),
        "/echo": lambda request: text(",".join(request.query["name[]"])),
        "/boom": _boom,
    }
    with _serving(HttpServer("127.0.0.1:0", routes, observe=seen.append)) as server:
        assert _get(server.port, "/healthz")[:2] == (503, b"loop sampler does not tick\n")
        assert _get(server.port, "/readyz")[:2] == (200, b"ok\n")
        assert _get(server.port, "/echo?name[]=a&name[]=b")[1] == b"a,b\n"
        assert _get(server.port, "/boom")[0] == 500
        status, body, _ = _get(server.port, "/nothing")

    assert status == 404
    assert b"/readyz" in body
    assert seen == [503, 200, 200, 500, 404]


def test_large_body_is_compressed_when_asked() -> None:
    """A scrape over a slow link is small."""
    big = text("npu " * 2000)
    with _serving(HttpServer("127.0.0.1:0", {"/": lambda _: big})) as server:
        plain = _get(server.port, "/")
        packed = _get(server.port, "/", **{"Accept-Encoding": "gzip"})

    assert plain[1] == big.body
    assert packed[2]["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed[1]) == big.body


def test_too_many_requests_at_once_get_503() -> None:
    """The number of requests served at once is bounded."""
    entered, release = threading.Event(), threading.Event()

    def slow(_request: Request) -> Response:
        entered.set()
        release.wait(5)
        return text("done")

    with _serving(HttpServer("127.0.0.1:0", {"/slow": slow}, in_flight=1)) as server:
        first = threading.Thread(target=_get, args=(server.port, "/slow"))
        first.start()
        assert entered.wait(5)

        status = _get(server.port, "/slow")[0]

        release.set()
        first.join(5)
    assert status == 503


def test_idle_tls_client_does_not_block_others(tmp_path: Path) -> None:
    """A client that never starts its handshake keeps nobody waiting."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost"
        f" -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}".split(),
        check=True,
        capture_output=True,
    )
    tls = TlsFiles(certificate=str(certificate), key=str(key))
    context = ssl.create_default_context(cafile=str(certificate))
    with (
        _serving(HttpServer("127.0.0.1:0", {"/": lambda _: text("hi")}, tls=tls)) as server,
        socket.create_connection(("127.0.0.1", server.port)),
    ):
        connection = http.client.HTTPSConnection(
            "127.0.0.1", server.port, timeout=5, context=context
        )
        connection.request("GET", "/")
        body = connection.getresponse().read()
        connection.close()

    assert body == b"hi\n"


@pytest.mark.parametrize(
    "bind", ["8080", "host", "[::]:x", "0.0.0.0:99999", "[::]:¹", "[::1", "::1:80", "[::1:80"]
)
def test_bad_address_is_quoted(bind: str) -> None:
    """A wrong bind address is reported as given."""
    with pytest.raises(ValueError, match="is not address:port"):
        parse_bind(bind)


def test_dual_stack_wildcard_answers_on_ipv4() -> None:
    """[::] serves IPv4 clients too, with or without IPv6 in the kernel."""
    with _serving(HttpServer("[::]:0", {"/": lambda _: text("hi")})) as server:
        assert _get(server.port, "/")[0] == 200

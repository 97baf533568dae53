"""The HTTP server answers probes and pages and survives bad clients."""

import contextlib
import gzip
import http.client
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from daemon.http import HttpServer, Request, Response, parse_bind, text
from daemon.probes import liveness, probe
from daemon.tls import TlsFiles


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


def test_one_connection_too_many_replaces_the_one_that_waited_longest() -> None:
    """Clients that say nothing cost threads: their number is bounded, and the newcomer counts."""
    with (
        _serving(HttpServer("127.0.0.1:0", {}, connections=2)) as server,
        contextlib.ExitStack() as stack,
    ):
        address = ("127.0.0.1", server.port)
        first, second, last = [
            stack.enter_context(socket.create_connection(address, timeout=5)) for _ in range(3)
        ]
        assert first.recv(1) == b""
        for client in (second, last):
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert client.makefile("rb").read().startswith(b"HTTP/1.1 404")


def test_connections_being_answered_keep_their_place() -> None:
    """Where all are being answered, one too many is closed and nobody else."""
    entered, release = threading.Event(), threading.Event()

    def slow(_request: Request) -> Response:
        entered.set()
        release.wait(5)
        return text("done")

    with (
        _serving(HttpServer("127.0.0.1:0", {"/": slow}, connections=1)) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as first,
    ):
        first.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert entered.wait(5)
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as second:
            assert second.recv(1) == b""
        release.set()
        assert first.makefile("rb").read().endswith(b"done\n")


@pytest.mark.parametrize("secure", [False, True])
def test_trickling_clients_do_not_keep_a_scrape_waiting(tls: TlsFiles, *, secure: bool) -> None:
    """With every place taken by clients that never finish a request, a scrape is answered."""
    routes = {"/metrics": lambda _request: text("npu_up 1")}
    server = HttpServer("127.0.0.1:0", routes, tls=tls if secure else None, connections=100)
    with _serving(server), contextlib.ExitStack() as stack:
        address = ("127.0.0.1", server.port)
        tricklers = [
            stack.enter_context(socket.create_connection(address, timeout=5)) for _ in range(150)
        ]
        beginning = b"\x16\x03\x01" if secure else b"GET /metrics HTTP/1.1\r\nX-Slow: "
        for client in tricklers:
            with contextlib.suppress(OSError):
                client.sendall(beginning)

        for _ in range(3):
            connection = (
                http.client.HTTPSConnection(
                    *address, timeout=5, context=ssl.create_default_context(cafile=tls.certificate)
                )
                if secure
                else http.client.HTTPConnection(*address, timeout=5)
            )
            connection.request("GET", "/metrics")
            assert connection.getresponse().read() == b"npu_up 1\n"
            connection.close()


def test_request_that_never_ends_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not buy more time than a whole request has."""
    monkeypatch.setattr("daemon.http._TOTAL_SECONDS", 0.5)
    with (
        _serving(HttpServer("127.0.0.1:0", {})) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=0.05) as client,
    ):
        client.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
        with pytest.raises(ConnectionError):
            _trickle(client)


def _trickle(client: socket.socket) -> None:
    """Send a byte again and again; raises ConnectionError once the server has had enough."""
    for _ in range(200):
        client.sendall(b"x")
        with contextlib.suppress(TimeoutError):
            if client.recv(1) == b"":
                raise ConnectionError


def test_kept_connection_has_the_whole_time_for_each_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limit is one request's, not the connection's."""
    monkeypatch.setattr("daemon.http._TOTAL_SECONDS", 1.0)
    with _serving(HttpServer("127.0.0.1:0", {"/": lambda _: text("hi")})) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
        connection.connect()
        first = connection.sock
        for _ in range(4):
            connection.request("GET", "/")
            assert connection.getresponse().read() == b"hi\n"
            time.sleep(0.4)
        assert connection.sock is first
        connection.close()


@pytest.mark.parametrize(
    "begin",
    ["GET http://[/echo", "GET /echo?" + "&".join(["a=1"] * 201), "POST http://[/echo"],
    ids=["address", "fields", "posted"],
)
def test_target_that_cannot_be_read_is_a_bad_request(begin: str) -> None:
    """A client that errs gets an answer, not a closed connection."""
    routes = {"/echo": lambda _request: text("ok")}
    with (
        _serving(HttpServer("127.0.0.1:0", routes)) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as client,
    ):
        client.sendall(f"{begin} HTTP/1.0\r\nContent-Length: 0\r\n\r\n".encode())
        answer = client.makefile("rb").readline()

    assert answer.split()[1] == b"400"


HIDDEN = b"GET /hidden HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /page HTTP/1.1\r\nContent-Length: %d" % len(HIDDEN), b"200"),
        (b"HEAD /page HTTP/1.1\r\nContent-Length: %d" % len(HIDDEN), b"200"),
        (b"GET /page HTTP/1.1\r\nTransfer-Encoding: chunked", b"501"),
        (b"POST /post HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 0", b"501"),
        (b"POST /post HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 99", b"400"),
    ],
)
def test_body_is_never_taken_for_a_request(head: bytes, status: bytes) -> None:
    """A proxy that forwards bodies must not be made to forward a request of somebody's own."""
    asked: list[str] = []

    def note(request: Request) -> Response:
        asked.append(request.path)
        return text("ok")

    routes = {"/page": note, "/hidden": note}
    with (
        _serving(HttpServer("127.0.0.1:0", routes, posts={"/post": note})) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as client,
    ):
        client.sendall(head + b"\r\n\r\n" + HIDDEN)
        answer = client.makefile("rb").read()

    assert answer.split()[1] == status
    assert answer.count(b"HTTP/1.1 ") == 1
    assert "/hidden" not in asked


def test_client_that_waits_for_a_word_before_its_body_gets_it() -> None:
    """So does curl with a large one."""
    posts = {"/post": lambda request: text(request.body.decode())}
    with (
        _serving(HttpServer("127.0.0.1:0", {}, posts=posts)) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as client,
    ):
        client.sendall(b"POST /post HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        stream = client.makefile("rb")
        assert stream.readline() == b"HTTP/1.1 100 Continue\r\n"
        client.sendall(b"abc")
        assert stream.readline() == b"\r\n"
        assert stream.readline() == b"HTTP/1.1 200 OK\r\n"


def test_large_bodies_share_a_room() -> None:
    """Many clients cannot fill the memory; those that only announce a body keep nobody out."""
    entered, release = threading.Semaphore(0), threading.Event()

    def slow(request: Request) -> Response:
        entered.release()
        release.wait(5)
        return text(str(len(request.body)))

    def post() -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
        connection.request("POST", "/post", b"x" * 1000)
        answer = connection.getresponse()
        told = answer.status, answer.read()
        connection.close()
        return told

    made = HttpServer("127.0.0.1:0", {}, posts={"/post": slow}, body_bytes=1000)
    with (
        _serving(made) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as announcing,
        ThreadPoolExecutor(8) as pool,
    ):
        announcing.sendall(b"POST /post HTTP/1.1\r\nContent-Length: 1000\r\n\r\n")
        first = [pool.submit(post) for _ in range(8)]
        assert all(entered.acquire(timeout=5) for _ in first)
        assert post() == (503, b"too many bodies at once\n")
        release.set()
        assert [one.result(5) for one in first] == [(200, b"1000\n")] * 8
        assert post() == (200, b"1000\n")


def test_kept_connections_end_with_the_server() -> None:
    """One that waits at once, one that is being answered after its answer."""
    entered, release = threading.Event(), threading.Event()

    def slow(_request: Request) -> Response:
        entered.set()
        release.wait(5)
        return text("done")

    server = HttpServer("127.0.0.1:0", {"/slow": slow})
    server.start()
    address = ("127.0.0.1", server.port)
    with (
        socket.create_connection(address, timeout=5) as idle,
        socket.create_connection(address, timeout=5) as busy,
    ):
        busy.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
        assert entered.wait(5)
        server.stop()
        assert idle.recv(1) == b""
        release.set()
        assert busy.makefile("rb").read().endswith(b"done\n")


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
        refused = _get(server.port, "/", **{"Accept-Encoding": "gzip;q=0, identity"})

    assert plain[1] == refused[1] == big.body
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


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """A certificate for this machine."""
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost"
        f" -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}".split(),
        check=True,
        capture_output=True,
    )
    return TlsFiles(certificate=str(certificate), key=str(key))


def test_idle_tls_client_does_not_block_others(tls: TlsFiles) -> None:
    """A client that never starts its handshake keeps nobody waiting."""
    context = ssl.create_default_context(cafile=tls.certificate)
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

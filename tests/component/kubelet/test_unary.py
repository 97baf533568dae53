"""The unary call against servers that break the rules, byte by byte."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection

from kubelet.unary import StatusError, call

Serve = Callable[[socket.socket], None]

HEADERS = [(":status", "200"), ("content-type", "application/grpc")]
EMPTY = b"\0\0\0\0\0"


@contextmanager
def served(serve: Serve) -> Iterator[str]:
    """Serve one connection at a socket."""
    with TemporaryDirectory(prefix="npu-") as directory, socket.socket(socket.AF_UNIX) as listener:
        path = str(Path(directory, "s"))
        listener.bind(path)
        listener.listen()

        def accept() -> None:
            connection, _ = listener.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield path
        thread.join(10)


def answering(body: bytes, trailers: list[tuple[str, str]], *, status: str = "200") -> Serve:
    """Return a server that answers any request with these bytes and trailers."""

    def serve(connection: socket.socket) -> None:
        http2 = H2Connection(H2Configuration(client_side=False))
        http2.initiate_connection()
        http2.receive_data(connection.recv(65536))
        http2.ping(b"whatever")  # servers measure the delay; the client must not stumble
        http2.send_headers(1, [(":status", status), *HEADERS[1:]])
        if body:
            http2.send_data(1, body)
        http2.send_headers(1, trailers, end_stream=True)
        connection.sendall(http2.data_to_send())
        connection.recv(65536)

    return serve


def ask(path: str, *, seconds: float = 5.0, limit: int = 1000) -> bytes:
    return call(path, "/s/M", b"", timeout_seconds=seconds, limit_bytes=limit)


def test_answer_is_the_message() -> None:
    """Prefix and trailers are gRPC's; the caller gets the message."""
    with served(answering(b"\0\0\0\0\5hello", [("grpc-status", "0")])) as path:
        assert ask(path) == b"hello"


@pytest.mark.parametrize(
    ("body", "trailers", "code"),
    [
        (b"", [("grpc-status", "8"), ("grpc-message", "rate%20limit")], "RESOURCE_EXHAUSTED"),
        (b"", [("grpc-status", "99")], "99"),
        (b"", [("grpc-status", "x")], "UNKNOWN"),
        (EMPTY, [("x", "y")], "UNKNOWN"),
        (b"", [("grpc-status", "0")], "INTERNAL"),
        (b"\1\0\0\0\0", [("grpc-status", "0")], "INTERNAL"),
        (b"\0\0\0\0\7x", [("grpc-status", "0")], "INTERNAL"),
        (b"\0\0\0\x10\0" + bytes(4096), [("grpc-status", "0")], "RESOURCE_EXHAUSTED"),
    ],
)
def test_bad_answers_have_a_status(body: bytes, trailers: list[tuple[str, str]], code: str) -> None:
    """Whatever comes back is a status, never an empty message or a foreign exception."""
    with served(answering(body, trailers)) as path, pytest.raises(StatusError) as raised:
        ask(path)
    assert raised.value.code == code
    assert "%20" not in raised.value.detail


def test_other_http_status_is_no_answer() -> None:
    """A proxy's page is not the kubelet."""
    serve = answering(EMPTY, [("grpc-status", "0")], status="502")
    with served(serve) as path, pytest.raises(StatusError, match="502"):
        ask(path)


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_broken_connection(sent: bytes) -> None:
    """A server that hangs up, or that speaks something else, has a status."""

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(sent)

    with served(serve) as path, pytest.raises(StatusError) as raised:
        ask(path)
    assert raised.value.code in ("UNAVAILABLE", "INTERNAL")


def test_mute_server_is_waited_for_only_so_long() -> None:
    """The deadline holds although the server keeps the connection."""
    done = threading.Event()

    def serve(_: socket.socket) -> None:
        done.wait(10)

    with served(serve) as path:
        with pytest.raises(StatusError) as raised:
            ask(path, seconds=0.1)
        done.set()
    assert raised.value.code == "DEADLINE_EXCEEDED"


def test_reset_call_is_unavailable() -> None:
    """A server that ends the stream, or the connection, has not answered."""

    def serve(connection: socket.socket) -> None:
        http2 = H2Connection(H2Configuration(client_side=False))
        http2.initiate_connection()
        http2.receive_data(connection.recv(65536))
        http2.reset_stream(1, error_code=11)
        connection.sendall(http2.data_to_send())
        connection.recv(65536)

    with served(serve) as path, pytest.raises(StatusError) as raised:
        ask(path)
    assert raised.value.code == "UNAVAILABLE"

"""One unary gRPC call over a Unix socket, without the gRPC library.

The gRPC library costs a process 20 MiB of memory, threads of its own and 18 MB of image; one call
every few seconds needs none of that. HTTP/2 itself (frames, flow control, header compression) is
``h2``'s work. What is here is gRPC's own thin layer: a five-byte prefix before each message, the
status in the trailers (``PROTOCOL-HTTP2.md`` of gRPC).

A connection lives for one call. A Unix socket costs next to nothing to connect, and nothing needs
to notice that the kubelet was restarted.
"""

import socket
import struct
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError

_PREFIX: Final = struct.Struct(">BI")
_STREAM: Final = 1
_RECEIVE_BYTES: Final = 65536
_DETAIL_LIMIT: Final = 256
#: Names of the status codes (``code.proto``).
_CODES: Final = dict(
    enumerate(
        (
            *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
            *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
            *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
            "UNAUTHENTICATED",
        )
    )
)


class StatusError(Exception):
    """The call ended with ``code`` (the name of a gRPC status) and ``detail``.

    As with the gRPC library, UNAVAILABLE is also what a broken connection becomes, and
    DEADLINE_EXCEEDED one that takes too long.
    """

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        self.detail = detail[:_DETAIL_LIMIT]
        super().__init__(f"{self.code}: {self.detail}")


@dataclass(slots=True)
class _Answer:
    body: bytearray = field(default_factory=bytearray)
    headers: dict[str, str] = field(default_factory=dict)
    ended: bool = False


def call(
    path: str,
    method: str,
    message: bytes,
    *,
    timeout_seconds: float,
    limit_bytes: int,
    monotonic: Callable[[], float] = time.monotonic,
) -> bytes:
    """Call ``method`` (``/package.Service/Method``) at the socket ``path``; return its answer.

    Raises StatusError, and OSError where nobody can be connected to. An answer above
    ``limit_bytes`` is RESOURCE_EXHAUSTED.
    """
    end = monotonic() + timeout_seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        try:
            connection.settimeout(timeout_seconds)
            connection.connect(path)
            answer = _exchange(
                connection,
                _request(method, message, timeout_seconds),
                limit_bytes,
                lambda: end - monotonic(),
            )
        except TimeoutError as error:
            raise StatusError("DEADLINE_EXCEEDED", f"no answer in {timeout_seconds:g} s") from error
        except (ConnectionRefusedError, FileNotFoundError, PermissionError):
            raise
        except ConnectionError as error:
            raise StatusError("UNAVAILABLE", str(error)) from error
        except ProtocolError as error:
            raise StatusError("INTERNAL", f"not HTTP/2: {error}") from error
    return _message(answer)


def _request(method: str, message: bytes, timeout_seconds: float) -> H2Connection:
    """Return a connection whose first bytes are the whole request."""
    connection = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    connection.initiate_connection()
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("grpc-timeout", f"{max(1, round(timeout_seconds * 1000))}m"),
        ("user-agent", "npu-platform"),
    ]
    connection.send_headers(_STREAM, headers)
    connection.send_data(_STREAM, _PREFIX.pack(0, len(message)) + message, end_stream=True)
    return connection


def _exchange(
    connection: socket.socket, http2: H2Connection, limit_bytes: int, left: Callable[[], float]
) -> _Answer:
    answer = _Answer()
    while not answer.ended:
        if pending := http2.data_to_send():
            connection.sendall(pending)
        if (seconds := left()) <= 0:
            raise TimeoutError
        connection.settimeout(seconds)
        data = connection.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionResetError("the connection was closed before the answer was complete")
        for event in http2.receive_data(data):
            _take(event, answer, http2)
        if len(answer.body) > limit_bytes + _PREFIX.size:
            raise StatusError("RESOURCE_EXHAUSTED", f"the answer exceeds {limit_bytes} bytes")
    return answer


def _take(event: Event, answer: _Answer, http2: H2Connection) -> None:
    if isinstance(event, DataReceived):
        answer.body += event.data
        if event.flow_controlled_length:
            http2.acknowledge_received_data(event.flow_controlled_length, _STREAM)
    elif isinstance(event, ResponseReceived | TrailersReceived):
        answer.headers.update((str(name), str(value)) for name, value in event.headers or ())
    elif isinstance(event, StreamEnded):
        answer.ended = True
    elif isinstance(event, StreamReset | ConnectionTerminated):
        raise ConnectionResetError(f"the call was ended with HTTP/2 code {event.error_code}")


def _message(answer: _Answer) -> bytes:
    status, code = answer.headers.get(":status"), answer.headers.get("grpc-status")
    if status != "200" or code is None:
        raise StatusError("UNKNOWN", f"HTTP status {status} without a gRPC status")
    if code != "0":
        name = _CODES.get(int(code), code) if code.isascii() and code.isdigit() else "UNKNOWN"
        detail = urllib.parse.unquote(answer.headers.get("grpc-message", ""), errors="replace")
        raise StatusError(name, detail)
    if len(answer.body) < _PREFIX.size:
        raise StatusError("INTERNAL", "an answer without a message")
    compressed, length = _PREFIX.unpack_from(answer.body)
    if compressed or length != len(answer.body) - _PREFIX.size:
        raise StatusError("INTERNAL", "an answer that is not one plain message")
    return bytes(answer.body[_PREFIX.size :])

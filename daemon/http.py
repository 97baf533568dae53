"""The HTTP server of a service: probes, metrics, pages; plain or TLS.

GET and HEAD from a table of exact paths, POST from another. The accepted socket is wrapped in the
worker thread and requests and answers have a time limit, so that no idle or slow client ever blocks
a scrape.
"""

import errno
import gzip
import http.server
import io
import logging
import re
import socket
import sys
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

from daemon.connections import Connections, Deadline, Room, TimedStream
from daemon.encoding import accepts_gzip
from daemon.logs import fields
from daemon.tls import Renewing, TlsFiles

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

#: How long a client may say nothing, between requests too.
_SILENCE_SECONDS = 10.0
#: How long a request may take to arrive, and an answer to be taken, however busily.
_TOTAL_SECONDS = 15.0
_COMPRESS_FROM_BYTES = 1400
_BIND = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%a-z]+)\]|(?P<host>[^][:]*)):(?P<port>[0-9]{1,5})")
_MAX_PORT = 65535
_MAX_QUERY_FIELDS = 200
#: What everybody may read where clients must have a certificate: the kubelet probes without one.
_WITHOUT_CERTIFICATE = frozenset({"/healthz", "/readyz"})
_LENGTH_DIGITS = 10
_PART_BYTES = 1 << 16
#: How many bodies of the largest size may be in memory at once, or more smaller ones.
_BODIES = 8
_WITHOUT_IPV6 = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request: path, query parameters (each a list), headers (lower-case names), posted body."""

    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer."""

    body: bytes
    status: int = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Response]
_Accepted = socket.socket | tuple[bytes, socket.socket]


def text(body: str, status: int = HTTPStatus.OK) -> Response:
    """Return a plain text answer ending in a newline; what UTF-8 cannot say is escaped."""
    return Response(body=f"{body.rstrip()}\n".encode(errors="backslashreplace"), status=status)


def parse_bind(bind: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[host]:port``; raises ValueError naming the fault."""
    match = _BIND.fullmatch(bind)
    if match is None or int(match["port"]) > _MAX_PORT:
        raise ValueError(f"{bind!r} is not address:port")
    return match["six"] or match["host"] or "", int(match["port"])


class HttpServer:
    """Serves ``routes`` on ``bind`` from daemon threads; a Service of the supervisor.

    At most ``in_flight`` requests are served at once, more get 503. Of more than ``connections``,
    those that have kept us waiting longest are closed. ``posts`` take bodies of at most
    ``body_bytes`` and bound their own number, so that they never keep a probe waiting; all together
    have the memory of some large ones. ``observe`` is called with the status of each answer.
    ``port`` is the real port after :meth:`start` (port 0 picks one). With ``tls.client_ca`` all but
    the probes is for clients with a certificate.
    """

    def __init__(
        self,
        bind: str,
        routes: Mapping[str, Handler],
        *,
        tls: TlsFiles | None = None,
        in_flight: int = 40,
        connections: int = 500,
        posts: Mapping[str, Handler] | None = None,
        body_bytes: int = 16 << 20,
        observe: Callable[[int], None] | None = None,
    ) -> None:
        self._bind = parse_bind(bind)
        self._routes = routes
        self._tls = tls
        self._slots = threading.BoundedSemaphore(in_flight)
        self._connections = connections
        self._posts = posts or {}
        self._body_bytes = body_bytes
        self.room = Room(_BODIES * body_bytes)
        self._observe = observe
        self._server: _Server | None = None
        self.port = 0

    def start(self) -> None:
        """Bind and serve; raises OSError or ssl.SSLError with what is wrong."""
        tls = None if self._tls is None else Renewing(self._tls)
        try:
            self._server = _Server(self._bind, self, tls)
        except OSError as error:
            error.filename = "{}:{}".format(*self._bind)
            raise
        self.port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, args=(0.5,), name="http", daemon=True
        ).start()
        log.info("serving HTTP", extra=fields(port=self.port, tls=self._tls is not None))

    def stop(self) -> None:
        """Stop accepting; end kept connections, those being answered after their answer."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server.connections.close()

    def for_strangers(self, path: str) -> bool:
        """Tell whether a client without a certificate may have this page."""
        return self._tls is None or self._tls.client_ca is None or path in _WITHOUT_CERTIFICATE

    @property
    def connections(self) -> int:
        """How many connections there may be."""
        return self._connections

    def accepts(self, path: str, length: int) -> Response | None:
        """Return why a body of so many bytes is not taken for ``path``, None if it is."""
        if path not in self._posts:
            return self._unknown(path)
        if length > self._body_bytes:
            return text(
                f"{length} bytes are too many, at most {self._body_bytes}",
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            )
        return None

    def answer(self, request: Request, *, posted: bool = False) -> Response:
        """Return the answer of the route, whatever happens in it."""
        handler = (self._posts if posted else self._routes).get(request.path)
        if handler is None:
            response = self._unknown(request.path)
        elif posted:
            response = _handled(handler, request)
        elif not self._slots.acquire(blocking=False):
            response = text("too many requests at once", HTTPStatus.SERVICE_UNAVAILABLE)
        else:
            try:
                response = _handled(handler, request)
            finally:
                self._slots.release()
        if self._observe is not None:
            self._observe(int(response.status))
        return response

    def _unknown(self, path: str) -> Response:
        if path in self._posts:
            return text("only POST", HTTPStatus.METHOD_NOT_ALLOWED)
        known = "\n".join(sorted({*self._routes, *self._posts}))
        return text(f"not found; this service has\n{known}", HTTPStatus.NOT_FOUND)


def _handled(handler: Handler, request: Request) -> Response:
    try:
        return handler(request)
    except Exception:
        log.exception("request failed", extra=fields(path=request.path))
        return text("internal error, see the log", HTTPStatus.INTERNAL_SERVER_ERROR)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    #: With the base class's 5, clients that come together lose their first packet, and a second.
    request_queue_size = 128

    def __init__(
        self,
        bind: tuple[str, int],
        owner: HttpServer,
        tls: Renewing | None,
    ) -> None:
        self.owner = owner
        self.tls = tls
        self.connections = Connections(owner.connections)
        host = bind[0]
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__(bind, _RequestHandler)
        except OSError as error:
            # A kernel without IPv6: the wildcard address means "everywhere", so IPv4 serves it.
            if host != "::" or error.errno not in _WITHOUT_IPV6:
                raise
            self.address_family = socket.AF_INET
            super().__init__(("0.0.0.0", bind[1]), _RequestHandler)  # noqa: S104

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # The base class would look up the host's name, which can hang without DNS.
        http.server.socketserver.TCPServer.server_bind(self)  # type: ignore[attr-defined]
        self.server_name, self.server_port = "", self.server_address[1]

    def process_request(self, request: _Accepted, client_address: object) -> None:
        """Give the connection a thread, or close it where there are too many."""
        if not self.connections.admit(request):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.connections.leave(request)
            raise

    def shutdown_request(self, request: _Accepted) -> None:
        """Close the connection, which was served to its end."""
        self.connections.leave(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        error = sys.exc_info()[1]
        log.debug("connection ended", extra=fields(client=client_address, error=error))


class _RequestHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        self._accepted = self.request
        self._deadline = Deadline(silence_seconds=_SILENCE_SECONDS, total_seconds=_TOTAL_SECONDS)
        self.request.settimeout(self._deadline.left())
        self._has_certificate = False
        if self.server.tls is not None:
            self._start_tls(self.server.tls.current())
        self.connection = self.request
        # Headers and body leave together: sent apart on a kept connection, the second would wait
        # 40 ms for the acknowledgement of the first.
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = TimedStream(self.connection, self._deadline)
        self.rfile = io.BufferedReader(stream)
        self.wfile = io.BufferedWriter(stream)

    def _start_tls(self, context: "ssl.SSLContext") -> None:
        """Shake hands, in this connection's own thread."""
        wrapped = context.wrap_socket(
            self._accepted, server_side=True, do_handshake_on_connect=False
        )
        try:
            if not self.server.connections.wrapped(self._accepted, wrapped):
                raise ConnectionAbortedError("its place was given to another")
            wrapped.do_handshake()
        except OSError:
            self.server.connections.leave(self._accepted)
            wrapped.close()
            raise
        # One that does not stand the test has ended the handshake.
        self._has_certificate = wrapped.getpeercert(binary_form=True) is not None
        self.request = wrapped

    def handle_one_request(self) -> None:
        self._deadline.restart()
        super().handle_one_request()
        self.server.connections.waiting(self._accepted)

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        fault = self._framing_fault()
        if fault is not None:
            self.close_connection = True
            self.send_error(fault)
            return False
        self.server.connections.answering(self._accepted)
        return True

    def _framing_fault(self) -> HTTPStatus | None:
        """Return the answer to a body whose end two readers may see in two places (RFC 9112, 6.3).

        What one takes for a body would be the next request to the other.
        """
        if "transfer-encoding" in self.headers:
            return HTTPStatus.NOT_IMPLEMENTED
        if len(set(self.headers.get_all("content-length", ()))) > 1:
            return HTTPStatus.BAD_REQUEST
        # Nobody reads the body of a GET, so nothing may follow it.
        if self.command != "POST" and self.headers.get("content-length", "0") != "0":
            self.close_connection = True
        return None

    def handle_expect_100(self) -> bool:
        """Ask for the body now: clients wait for this word before they send a large one."""
        proceed = super().handle_expect_100()
        self.wfile.flush()
        return proceed

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            if self.server.tls is not None:
                # The server closes the socket it accepted, which wrapping has emptied.
                self.server.connections.leave(self._accepted)
                self.request.close()

    def version_string(self) -> str:
        return "npu-platform"

    def do_GET(self) -> None:
        self._respond(with_body=True)

    def do_HEAD(self) -> None:
        self._respond(with_body=False)

    def do_POST(self) -> None:
        length = self.headers.get("content-length", "")
        if not (length.isascii() and length.isdigit() and len(length) <= _LENGTH_DIGITS):
            self.close_connection = True
            self.send_error(HTTPStatus.LENGTH_REQUIRED)
            return
        try:
            path = urllib.parse.urlsplit(self.path).path
        except ValueError as error:
            self.close_connection = True
            self.send_error(HTTPStatus.BAD_REQUEST, explain=str(error))
            return
        refused = self._refused(path) or self.server.owner.accepts(path, int(length))
        if refused is not None:
            # What is not read would be taken for the next request.
            self.close_connection = True
            self._send(refused, headers={}, with_body=True)
            return
        with self.server.owner.room.guest() as take:
            body = self._received(int(length), take)
            if body is not None:
                self._respond(with_body=True, body=body)

    def _received(self, length: int, take: Callable[[int], bool]) -> bytes | None:
        """Return a body of that length, None where it ends early or there is no room for it."""
        parts: list[bytes] = []
        while length:
            part = self.rfile.read1(min(_PART_BYTES, length))
            if not part:
                return None
            if not take(len(part)):
                self.close_connection = True
                refused = text("too many bodies at once", HTTPStatus.SERVICE_UNAVAILABLE)
                self._send(refused, headers={}, with_body=True)
                return None
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def _refused(self, path: str) -> Response | None:
        """Return the answer to a client that lacks a certificate, None where it may ask."""
        if self._has_certificate or self.server.owner.for_strangers(path):
            return None
        return text("this page is for clients with a certificate", HTTPStatus.FORBIDDEN)

    def _respond(self, *, with_body: bool, body: bytes | None = None) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            target = urllib.parse.urlsplit(self.path)
            query = urllib.parse.parse_qs(target.query, max_num_fields=_MAX_QUERY_FIELDS)
        except ValueError as error:
            self.send_error(HTTPStatus.BAD_REQUEST, explain=str(error))
            return
        response = self._refused(target.path) or self.server.owner.answer(
            Request(path=target.path, query=query, headers=headers, body=body or b""),
            posted=body is not None,
        )
        self._send(response, headers=headers, with_body=with_body)

    def _send(self, response: Response, *, headers: Mapping[str, str], with_body: bool) -> None:
        self._deadline.restart()
        body = response.body
        self.send_response(response.status)
        if self.close_connection:
            self.send_header("Connection", "close")
        for name, value in response.headers.items():
            self.send_header(name, value)
        if len(body) > _COMPRESS_FROM_BYTES and accepts_gzip(headers.get("accept-encoding", "")):
            body = gzip.compress(body, compresslevel=1)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        log.debug("request", extra=fields(line=format % args))

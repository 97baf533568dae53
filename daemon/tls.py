"""Certificates of servers and clients; renewed files count from the next connection on."""

import logging
import ssl  # waits until TLS is spoken, hence the quotes around its types; see deferred
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from daemon.logs import fields

log = logging.getLogger(__name__)

#: How soon files are read again that could not be used: what was wrong may not show in them, such
#: as a lack of file descriptors.
RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Certificate and key of a server.

    With ``client_ca`` a client's certificate must be signed by it; whether a client must have one
    depends on the page (see :class:`daemon.http.HttpServer`), as the kubelet probes without.
    """

    certificate: str
    key: str
    client_ca: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """The files that :meth:`context` reads."""
        return (self.certificate, self.key, *filter(None, (self.client_ca,)))

    def context(self) -> "ssl.SSLContext":
        """Read the files; raises OSError or ssl.SSLError, the message names the file."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load(context, self.certificate, self.key)
        if self.client_ca is not None:
            _trust(context, self.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """What a client verifies a server by, and the certificate it shows, where it has one.

    The server's certificate must be signed by ``ca``. Its name is compared with the one that the
    caller gives as the server's.
    """

    ca: str
    certificate: str = ""
    key: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that :meth:`context` reads."""
        return tuple(filter(None, (self.ca, self.certificate, self.key)))

    def context(self) -> "ssl.SSLContext":
        """Read the files; raises OSError or ssl.SSLError, the message names the file."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _trust(context, self.ca)
        if self.certificate:
            _load(context, self.certificate, self.key)
        return context


class _Maker(Protocol):
    @property
    def files(self) -> Sequence[str]: ...

    def context(self) -> "ssl.SSLContext": ...


class Renewing:
    """A context that follows its files. Used by any number of threads.

    Certificates live for weeks, daemons for months. A renewed one is used for new connections, or
    the last good one while that cannot be used (half written, or the key of another).
    """

    def __init__(self, maker: _Maker, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._maker = maker
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._stamp = self._look()
        self._context = maker.context()
        self._retry_at: float | None = None

    def current(self) -> "ssl.SSLContext":
        """Return the context for a new connection."""
        with self._lock:
            stamp, now = self._look(), self._monotonic()
            if stamp != self._stamp or (self._retry_at is not None and now >= self._retry_at):
                self._renew(now, told=stamp == self._stamp)
                self._stamp = stamp
            return self._context

    def _renew(self, now: float, *, told: bool) -> None:
        """Read the files again; a failure is told once."""
        try:
            self._context = self._maker.context()
        except OSError as error:
            self._retry_at = now + RETRY_SECONDS
            if not told:
                log.warning(
                    "A renewed certificate cannot be used, the last one is",
                    extra=fields(error=error),
                )
        else:
            self._retry_at = None
            log.info("Certificates were renewed", extra=fields(files=self._maker.files))

    def _look(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(_identity(Path(file)) for file in self._maker.files)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _load(context: "ssl.SSLContext", certificate: str, key: str) -> None:
    for file in (certificate, key):
        _readable(file)
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise _naming(error, f"{certificate} and {key}") from error


def _trust(context: "ssl.SSLContext", authority: str) -> None:
    _readable(authority)
    try:
        context.load_verify_locations(authority)
    except ssl.SSLError as error:
        raise _naming(error, authority) from error


def _readable(file: str) -> None:
    # OpenSSL's own message names no file.
    with Path(file).open("rb"):
        pass


def _naming(error: "ssl.SSLError", files: str) -> "ssl.SSLError":
    return ssl.SSLError(f"{files}: not usable for TLS: {error.reason or error}")

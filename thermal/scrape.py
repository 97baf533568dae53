"""Fetches pages of exporters and plugins from many nodes at once.

Dead nodes are the problem, not work: 250 of them with a second each would block a pool of fifty
threads for a whole cycle. So one event loop asks all of them together, and goes on while the
caller judges those that answered: a dead node must not delay a living one. Every page has a time
limit and a size limit, because a node may send anything.
"""

import asyncio
import contextlib
import logging
import threading
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from daemon.logs import fields
from daemon.tls import Renewing
from thermal.exposition import parse
from thermal.readings import WANTED, NodeSample, node_sample
from thermal.source import Failure, FailureReason, Target

T = TypeVar("T")

log = logging.getLogger(__name__)

PAGE_LIMIT_BYTES = 256 << 10
_CONCURRENT = 250
_CHUNK_BYTES = 16 << 10
_HTTP_OK = b"200"


class _PageError(Exception):
    def __init__(self, reason: FailureReason, detail: str) -> None:
        super().__init__(detail)
        self.reason: FailureReason = reason


class PageReader(Generic[T]):
    """Reads one page directly from many Pods. Used by one thread.

    ``decode`` makes a result of it; what raises ValueError or TypeError there is no such page.
    With ``tls`` pages come by TLS, from servers whose certificate is for ``server_name``. With
    ``patience_seconds`` a read waits no longer than that: the pages of slow nodes arrive while
    the caller does something else, and are handed out by a later read.
    """

    def __init__(
        self,
        path: str,
        decode: Callable[[bytes], T],
        *,
        port: int,
        timeout_seconds: float = 2.0,
        patience_seconds: float | None = None,
        tls: Renewing | None = None,
        server_name: str = "",
    ) -> None:
        self._path = path
        self._decode = decode
        self._port = port
        self._timeout = timeout_seconds
        self._patience = patience_seconds
        self._tls = tls
        self._server_name = server_name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = threading.Condition()
        self._asked: set[str] = set()
        self._results: dict[str, T | Failure] = {}

    def read(self, targets: Sequence[Target]) -> Mapping[str, T | Failure]:
        """Fetch the pages of those targets whose last page is not still awaited."""
        if not targets and not self._asked:
            return {}
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="scrape", daemon=True).start()
        with self._changed:
            fresh = [target for target in targets if target.node not in self._asked]
            names = {target.node for target in fresh}
            self._asked |= names
        asyncio.run_coroutine_threadsafe(self._read_all(fresh), self._loop)
        with self._changed:
            self._changed.wait_for(lambda: self._results.keys() >= names, self._patience)
            results, self._results = self._results, {}
            self._asked -= results.keys()
        return results

    async def _read_all(self, targets: Sequence[Target]) -> None:
        # Not all in one moment: each is a connection, and nodes answer one after the other anyway.
        slots = asyncio.Semaphore(_CONCURRENT)
        await asyncio.gather(*(self._deliver(target, slots) for target in targets))

    async def _deliver(self, target: Target, slots: asyncio.Semaphore) -> None:
        async with slots:
            result = await self._read_one(target)
        with self._changed:
            self._results[target.node] = result
            self._changed.notify()

    async def _read_one(self, target: Target) -> T | Failure:
        try:
            async with asyncio.timeout(self._timeout):
                page = await self._page(target.address)
            return self._decode(page)
        except TimeoutError:
            return Failure(reason="timeout", detail=f"no page within {self._timeout:g} s")
        except OSError as error:
            return Failure(reason="connect", detail=str(error))
        except _PageError as error:
            return Failure(reason=error.reason, detail=str(error))
        except (ValueError, TypeError) as error:
            return Failure(reason="http", detail=str(error))
        except Exception as error:
            # Whatever it was: a node without a result would never be asked again.
            log.exception("page cannot be read", extra=fields(node=target.node))
            return Failure(reason="http", detail=type(error).__name__)

    async def _page(self, address: str) -> bytes:
        reader, writer = await self._connection(address)
        try:
            host = f"[{address}]" if ":" in address else address
            # HTTP/1.0: the page ends with the connection, and no server answers in chunks.
            writer.write(
                f"GET {self._path} HTTP/1.0\r\nHost: {host}:{self._port}\r\n"
                "Accept: */*\r\nUser-Agent: npu-platform-guard\r\n\r\n".encode()
            )
            await writer.drain()
            return _body(await _bounded(reader))
        finally:
            # Not close: TLS would wait half a minute for the farewell of a node that hangs.
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _connection(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._tls is None:
            return await asyncio.open_connection(address, self._port)
        return await asyncio.open_connection(
            address, self._port, ssl=self._tls.current(), server_hostname=self._server_name
        )


class Scraper(PageReader[NodeSample]):
    """Reads exporters: of their metrics only those that the guard wants."""

    def __init__(
        self,
        *,
        port: int,
        timeout_seconds: float = 2.0,
        patience_seconds: float | None = None,
        tls: Renewing | None = None,
        server_name: str = "",
    ) -> None:
        query = urllib.parse.urlencode([("name[]", name) for name in sorted(WANTED)])
        super().__init__(
            f"/metrics?{query}",
            lambda page: node_sample(parse(page.decode("utf-8", "replace"), WANTED)),
            port=port,
            timeout_seconds=timeout_seconds,
            patience_seconds=patience_seconds,
            tls=tls,
            server_name=server_name,
        )


async def _bounded(reader: asyncio.StreamReader) -> bytes:
    content = bytearray()
    while chunk := await reader.read(_CHUNK_BYTES):
        content += chunk
        if len(content) > PAGE_LIMIT_BYTES:
            raise _PageError("too_large", f"page exceeds {PAGE_LIMIT_BYTES} bytes")
    return bytes(content)


def _body(answer: bytes) -> bytes:
    head, separator, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split(b" ")
    if not separator or len(status) < 2 or status[1] != _HTTP_OK:  # noqa: PLR2004 (version, code)
        raise _PageError("http", f"answer begins with {head[:60]!r}")
    return body

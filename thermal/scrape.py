"""Fetches exporter pages from many nodes at once.

Dead nodes are the problem, not work: 250 of them with a second each would block a pool of fifty
threads for a whole cycle. So one event loop asks all of them together. Every page has a time limit
and a size limit, because a node may send anything.
"""

import asyncio
import contextlib
import urllib.parse
from collections.abc import Mapping, Sequence

from thermal.exposition import parse
from thermal.readings import WANTED, node_sample
from thermal.source import Failure, FailureReason, Result, Target

PAGE_LIMIT_BYTES = 256 << 10
_CONCURRENT = 250
_CHUNK_BYTES = 16 << 10
_HTTP_OK = b"200"


class _PageError(Exception):
    def __init__(self, reason: FailureReason, detail: str) -> None:
        super().__init__(detail)
        self.reason: FailureReason = reason


class Scraper:
    """Reads pages directly from exporter Pods. Used by one thread."""

    def __init__(self, *, port: int, timeout_seconds: float = 2.0) -> None:
        self._port = port
        self._timeout = timeout_seconds
        query = urllib.parse.urlencode([("name[]", name) for name in sorted(WANTED)])
        self._path = f"/metrics?{query}"

    def read(self, targets: Sequence[Target]) -> Mapping[str, Result]:
        """Fetch all pages; takes little longer than the time limit of one."""
        return asyncio.run(self._read_all(targets)) if targets else {}

    async def _read_all(self, targets: Sequence[Target]) -> Mapping[str, Result]:
        slots = asyncio.Semaphore(_CONCURRENT)
        results = await asyncio.gather(*(self._read_one(target, slots) for target in targets))
        return {target.node: result for target, result in zip(targets, results, strict=True)}

    async def _read_one(self, target: Target, slots: asyncio.Semaphore) -> Result:
        async with slots:
            try:
                async with asyncio.timeout(self._timeout):
                    page = await self._page(target.address)
            except TimeoutError:
                return Failure(reason="timeout", detail=f"no page within {self._timeout:g} s")
            except OSError as error:
                return Failure(reason="connect", detail=str(error))
            except _PageError as error:
                return Failure(reason=error.reason, detail=str(error))
        return node_sample(parse(page.decode("utf-8", "replace"), WANTED))

    async def _page(self, address: str) -> bytes:
        reader, writer = await asyncio.open_connection(address, self._port)
        try:
            host = f"[{address}]" if ":" in address else address
            # HTTP/1.0: the page ends with the connection, and no server answers in chunks.
            writer.write(
                f"GET {self._path} HTTP/1.0\r\nHost: {host}:{self._port}\r\n"
                "Accept: text/plain\r\nUser-Agent: npu-platform-guard\r\n\r\n".encode()
            )
            await writer.drain()
            return _body(await _bounded(reader))
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


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

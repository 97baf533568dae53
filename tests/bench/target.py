"""A process under measurement: scrapes, CPU time and memory as the kernel counts them."""

import contextlib
import http.client
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: As Prometheus asks.
_HEADERS = {
    "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
    "Accept-Encoding": "gzip",
    "X-Prometheus-Scrape-Timeout-Seconds": "10",
}
_MEBI = 1024
_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Scrapes of one target: milliseconds, and CPU time of the process for each."""

    scrapes: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    cpu_ms: float
    bytes: int


class Target:
    """A process ``pid`` that answers on ``port`` of the loopback."""

    def __init__(self, pid: int, port: int) -> None:
        self._pid = pid
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def get(self, path: str = "/metrics") -> bytes:
        """Return the body as it travelled, over a connection that is kept as Prometheus does."""
        self._connection.request("GET", path, headers=_HEADERS)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f"{path}: {answer.status}")
        return body

    def wait(self, ready: Callable[[], bool]) -> None:
        """Wait until ``ready``, which may fail to connect."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException, RuntimeError):
                if ready():
                    return
            self._connection.close()
            if time.monotonic() > deadline:
                raise TimeoutError("the process does not serve")
            time.sleep(0.2)

    def latency(
        self, scrapes: int, *, pause_seconds: float = 0.0, path: str = "/metrics"
    ) -> Latency:
        """Scrape so often and measure."""
        durations: list[float] = []
        before = self.cpu_seconds()
        size = 0
        for _ in range(scrapes):
            begin = time.perf_counter()
            size = len(self.get(path))
            durations.append((time.perf_counter() - begin) * 1000)
            if pause_seconds:
                time.sleep(pause_seconds)
        cuts = statistics.quantiles(durations, n=100)
        return Latency(
            scrapes=scrapes,
            p50_ms=cuts[49],
            p99_ms=cuts[98],
            max_ms=max(durations),
            cpu_ms=(self.cpu_seconds() - before) / scrapes * 1000,
            bytes=size,
        )

    def idle_cpu_ratio(self, seconds: float) -> float:
        """Return the CPU time used while nobody scrapes, as a share of one core."""
        self._connection.close()  # else the server would close it before the next request
        before, begin = self.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        return (self.cpu_seconds() - before) / (time.monotonic() - begin)

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process so far, with that of threads that have ended."""
        values = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mebibytes(self) -> float:
        """Return the resident memory."""
        for line in Path(f"/proc/{self._pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / _MEBI
        raise ProcessLookupError(self._pid)


def only_child(pid: int) -> int:
    """Return the process that a wrapper started."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    deadline = time.monotonic() + _START_SECONDS
    while not (found := children.read_text().split()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} starts nothing")
        time.sleep(0.05)
    return int(found[0])


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))

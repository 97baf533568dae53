"""How long scrapes of the exporter take, and how much memory it needs.

``python -m tests.bench.exporter_scrape`` starts the real process on a simulated board with a
kubelet beside it, scrapes it over HTTP, and prints percentiles and memory. It judges nothing.
"""

import argparse
import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from npu import catalogue
from npu.layout import expand
from npu.tree import materialise
from tests.component.fake_kubelet import FakeKubelet, Held

CHECKOUT = Path(__file__).resolve().parents[2]
PORT = 18097
WARM_UP = 50


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.exporter_scrape")
    parser.add_argument("--board", default="rk3588", choices=catalogue.names())
    parser.add_argument("--scrapes", type=int, default=1000)
    parser.add_argument("--pause-seconds", type=float, default=0.01, help="between two scrapes")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="npu-") as directory:
        board = Path(directory, "board")
        materialise(expand(catalogue.load(options.board)), board, device_nodes=False)
        kubelet = FakeKubelet(Path(directory))
        kubelet.held = (Held("team-a", "detector-0", "main", "rockchip.com/npu", ("npu0",)),)
        kubelet.start()
        process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-u", "-c", _PROGRAM),
                f"--root={board}",
                f"--pod-resources-socket={kubelet.pod_resources / 'kubelet.sock'}",
                f"--bind=127.0.0.1:{PORT}",
                "--log-level=error",
            ]
        )
        try:
            _wait()
            _measure(process.pid, options.scrapes, options.pause_seconds)
        finally:
            process.terminate()
            process.wait(10)
            kubelet.stop()
    return 0


_PROGRAM = (
    f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); "
    "from exporter.main import main; sys.exit(main())"
)


def _measure(process: int, scrapes: int, pause_seconds: float) -> None:
    for kind, path in (("all metrics", "/metrics"), ("guard's filter", _GUARD), ("page", "/")):
        durations: list[float] = []
        cpu = _cpu_seconds(process)
        for number in range(WARM_UP + scrapes):
            begin = time.perf_counter()
            size = len(_body(path))
            if number >= WARM_UP:
                durations.append((time.perf_counter() - begin) * 1000)
            time.sleep(pause_seconds)
        cpu = (_cpu_seconds(process) - cpu) / (WARM_UP + scrapes) * 1000
        cuts = statistics.quantiles(durations, n=100)
        sys.stdout.write(
            f"{kind:<15} {size:6} bytes  p50 {cuts[49]:6.2f} ms  p99 {cuts[98]:6.2f} ms"
            f"  max {max(durations):6.2f} ms  CPU {cpu:5.2f} ms each  {_memory(process)}\n"
        )


_GUARD = "/metrics?" + "&".join(
    f"name[]={name}"
    for name in (
        "npu_info",
        "npu_temperature_celsius",
        "npu_temperature_limit_celsius",
        "npu_core_busy_seconds_total",
        "npu_core_sampled_seconds_total",
    )
)


def _wait() -> None:
    for _ in range(100):
        try:
            if b"podresources_up 1" in _body("/metrics?name[]=npu_podresources_up"):
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise TimeoutError("the exporter does not serve")


def _body(path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def _cpu_seconds(process: int) -> float:
    values = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


def _memory(process: int) -> str:
    kibibytes: dict[str, int] = {}
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(("VmRSS", "RssAnon", "Threads")):
            kibibytes[line.split(":")[0]] = int(line.split()[1])
    return (
        f"RSS {kibibytes['VmRSS'] / 1024:.1f} MiB, anonymous {kibibytes['RssAnon'] / 1024:.1f} MiB,"
        f" {kibibytes['Threads']} threads"
    )


if __name__ == "__main__":
    sys.exit(main())

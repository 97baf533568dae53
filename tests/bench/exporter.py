"""How long scrapes of the exporter take and what it costs, beside prometheus-node-exporter.

``make bench-exporter`` runs the exporter of the built image, in the image's own Python, on boards
with 1, 3 and 8 NPUs and a kubelet with 30 Pods. The numbers are printed, and written with ``--json
FILE``; a missed gate is told and ends it with 1. No board has 3 or 8 vendor NPUs: there the driver
is made to attribute its one load file to each.
"""

import argparse
import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ci.cache import cache_dir
from ci.debian import host_architecture
from ci.lock import exclusive
from ci.tools import debian_tree
from images.build import REGISTRY, Builder, default_tag
from images.rootfs import laid_out
from images.services import SERVICES
from npu.tree import materialise
from tests.bench.boards import several
from tests.bench.target import Latency, Target, only_child, processors
from tests.component.fake_kubelet import FakeKubelet, Held

CHECKOUT = Path(__file__).resolve().parents[2]
PORT = 18097
DEVICES = (1, 3, 8)
PODS = 30
WARM_UP = 300

GATE_P99_MS = 10.0
GATE_RSS_MEBIBYTES = 45.0
GATE_CPU_RATIO = 0.005
#: What counts as flat over thousands of scrapes.
GATE_GROWTH_MEBIBYTES = 1.0

_PROGRAM = """\
import sys
from npu.drivers import rknpu_files
from npu.drivers.rknpu import RknpuDriver
if {several}:
    RknpuDriver.load = lambda self, host, npu: rknpu_files.read_load(host)
from exporter.main import main
sys.exit(main())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table; a value that was not measured is None."""

    target: str
    series: int
    latency: Latency
    idle_cpu_ratio: float
    rss_mebibytes: float
    growth_mebibytes: float | None = None
    page_rss_mebibytes: float | None = None

    def missed(self) -> Iterator[str]:
        """Yield the gates that it misses."""
        for what, value, gate in (
            ("p99 of a scrape in ms", self.latency.p99_ms, GATE_P99_MS),
            ("memory in MiB", self.page_rss_mebibytes or self.rss_mebibytes, GATE_RSS_MEBIBYTES),
            ("CPU when idle", self.idle_cpu_ratio, GATE_CPU_RATIO),
            ("growth of memory in MiB", self.growth_mebibytes or 0.0, GATE_GROWTH_MEBIBYTES),
        ):
            if value > gate:
                yield f"{self.target}: {what}: {value:.3f} is above {gate}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.exporter")
    parser.add_argument("--scrapes", type=int, default=1000, help="for the percentiles")
    parser.add_argument("--many", type=int, default=10_000, help="for the growth of memory")
    parser.add_argument("--idle-seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path, help="write the numbers to this file too")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    for devices in DEVICES:
        with exporter(devices) as target:
            many = options.many if devices == 1 else 0
            rows.append(
                measure(
                    f"exporter, {devices} NPU", target, options.scrapes, options.idle_seconds, many
                )
            )
        say(rows[-1])
    with node_exporter() as target:
        rows.append(measure("node_exporter", target, options.scrapes, options.idle_seconds, 0))
    say(rows[-1])
    missed = [line for row in rows if row.target != "node_exporter" for line in row.missed()]
    if options.json is not None:
        load = os.getloadavg()[0]
        text = {"processors": processors(), "load_average": load, "missed": missed}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(
            json.dumps({**text, "rows": [asdict(row) for row in rows]}, indent=2)
        )
    sys.stdout.write("".join(f"MISSED {line}\n" for line in missed) or "all gates are met\n")
    return 1 if missed else 0


def measure(name: str, target: Target, scrapes: int, idle_seconds: float, many: int) -> Row:
    """Measure one target; ``many`` scrapes more tell whether its memory grows."""
    target.latency(WARM_UP)
    idle = target.idle_cpu_ratio(idle_seconds)
    latency = target.latency(scrapes, pause_seconds=0.01)
    rss = target.rss_mebibytes()
    growth = page = None
    if many:
        target.latency(many)
        growth = target.rss_mebibytes() - rss
    if name.startswith("exporter"):
        target.get("/")
        page = target.rss_mebibytes()
    return Row(
        target=name,
        series=series(target),
        latency=latency,
        idle_cpu_ratio=idle,
        rss_mebibytes=rss,
        growth_mebibytes=growth,
        page_rss_mebibytes=page,
    )


def series(target: Target) -> int:
    """Return how many series a scrape has."""
    body = target.get()
    text = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
    return sum(1 for line in text.splitlines() if line and not line.startswith(b"#"))


def say(row: Row) -> None:
    """Print one row."""
    one = row.latency
    growth = "" if row.growth_mebibytes is None else f", {row.growth_mebibytes:+.1f} after many"
    page = "" if row.page_rss_mebibytes is None else f", {row.page_rss_mebibytes:.1f} with the page"
    sys.stdout.write(
        f"{row.target:<17} {row.series:5} series"
        f"  p50 {one.p50_ms:6.2f} ms  p99 {one.p99_ms:6.2f} ms"
        f"  CPU {one.cpu_ms:5.2f} ms/scrape, idle {row.idle_cpu_ratio:.2%}"
        f"  RSS {row.rss_mebibytes:.1f} MiB{growth}{page}\n"
    )
    sys.stdout.flush()


@contextlib.contextmanager
def exporter(devices: int) -> Iterator[Target]:
    """Run the image's exporter on a board with so many NPUs, each held by Pods."""
    cache, architecture = cache_dir(), host_architecture()
    with exclusive(cache / "images" / "lock", reason="it is building images"):
        builder = Builder(CHECKOUT, cache, architecture)
        image = builder.image(SERVICES["exporter"], registry=REGISTRY, tag=default_tag(CHECKOUT))
    with laid_out(image, cache, {}) as root, contextlib.ExitStack() as stack:
        board = root.path / "board"
        materialise(several(devices), board, device_nodes=False)
        kubelet = FakeKubelet(root.path)
        kubelet.held = tuple(
            Held("team-a", f"detector-{n}", "main", "rockchip.com/npu", (f"npu{n % devices}-s{n}",))
            for n in range(PODS)
        )
        kubelet.start()
        stack.callback(kubelet.stop)
        socket = kubelet.pod_resources / "kubelet.sock"
        socket.chmod(0o777)
        arguments = (
            *(f"--root=/{board.name}", f"--bind=127.0.0.1:{PORT}", "--log-level=error"),
            f"--pod-resources-socket=/{socket.relative_to(root.path)}",
        )
        words = list(root.entrypoint)
        words = words[: words.index("-m")]
        program = _PROGRAM.format(several=devices > 1)
        with subprocess.Popen(
            root.command(*words, "-c", program, *arguments),
            env={**root.environment, "PATH": os.environ["PATH"]},
        ) as wrapper:
            try:
                # A wrapper that is killed does not take along a child that changed its user.
                child = only_child(wrapper.pid)
                stack.callback(os.kill, child, signal.SIGKILL)
                target = Target(child, PORT)
                target.wait(lambda: series(target) > PODS)
                yield target
            finally:
                stack.close()


@contextlib.contextmanager
def node_exporter() -> Iterator[Target]:
    """Run Debian's prometheus-node-exporter with its defaults."""
    tree = debian_tree("node-exporter", ("prometheus-node-exporter",))
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            [
                tree / "usr/bin/prometheus-node-exporter",
                f"--web.listen-address=127.0.0.1:{PORT + 1}",
            ],
            stderr=log,
        ) as process,
    ):
        try:
            target = Target(process.pid, PORT + 1)
            target.wait(lambda: bool(target.get()))
            yield target
        finally:
            process.terminate()


if __name__ == "__main__":
    sys.exit(main())

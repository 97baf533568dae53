"""The thermal guard on a fleet: whether it keeps up, and what it costs.

``make bench-guard`` starts a real etcd and API server, creates Nodes and exporter Pods in it as
plain objects, lets one process be all exporters (``guard_farm``), and runs the guard as it is. One
twentieth of the boards is dead. Two situations are measured:

* steady: one node after the other gets hot, while the guard still writes its first records;
* wave: 30 % of all nodes get hot at once.

``--brief`` is the first with a shorter debounce and fewer seconds: what the cluster tests run.
``--claims`` is the same on nodes of mode ``dra``: slices are published first, and what closes a
node is a DeviceTaintRule.

A node is late by the time from the moment the rules close it, were its board read exactly on time,
until the taint, or the rule, is seen on a watch. The numbers are printed, and written with ``--json
FILE``; a missed gate is told and ends it with 1.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from ci.cluster import Cluster
from npu import heat
from npu.heat import Heat
from tests.bench.guard_farm import HEATING, address_of, name_of, page
from tests.bench.guard_fleet import NAMESPACE, Fleet, Observer
from tests.bench.target import Target, processors
from thermal.config import Config
from thermal.exposition import parse
from thermal.kube import Client
from thermal.readings import WANTED, node_sample

CHECKOUT = Path(__file__).resolve().parents[2]
FARM_PORT = 18080
GUARD_PORT = 18098
DEAD_RATIO = 0.05
WAVE_RATIO = 0.3
BRIEF_WAVE_RATIO = 0.1

GATE_CORES = 1.0
GATE_RSS_MEBIBYTES = 256.0
GATE_LATE_SECONDS = 15.0
GATE_WRITES = 10.0
_READY_SECONDS = 300.0
#: The pace of writing slices, with a fifth of it in reserve.
_PUBLISHED_PER_SECOND = 7.0
#: Hot after four seconds in place of fifteen; nothing else of the guard's configuration differs.
BRIEF = "thresholds: {timing: {hotEnterSeconds: 4}}\n"
CLAIMS = "dra: {enabled: true}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What was measured in one situation; ``late`` are seconds."""

    name: str
    heated: int
    tainted: int
    late_p50: float | None
    late_p99: float | None
    cores: float
    rss_mebibytes: float
    writes_per_second: float
    cycle_seconds: float

    def missed(self) -> Iterator[str]:
        """Yield the gates that it misses."""
        if self.name == "steady":
            if self.tainted < self.heated:
                yield f"{self.name}: {self.heated - self.tainted} nodes were not tainted"
            if self.late_p99 is not None and self.late_p99 > GATE_LATE_SECONDS:
                yield f"{self.name}: p99 of {self.late_p99:.1f} s is above {GATE_LATE_SECONDS}"
        for what, value, gate in (
            ("cores", self.cores, GATE_CORES),
            ("MiB", self.rss_mebibytes, GATE_RSS_MEBIBYTES),
            ("writes a second", self.writes_per_second, GATE_WRITES),
        ):
            if value > gate:
                yield f"{self.name}: {value:.1f} {what} are above {gate}"


def seconds_to_hot(config: Config) -> float:
    """Return how long after its load came a board is hot by the rules, read on time."""
    limits = config.settings.resolve(
        model="rk3588", trips=node_sample(parse(page(50.0, 0.0), WANTED)).trips
    )
    now, machine = -60.0, heat.start(-60.0)
    while True:
        celsius = HEATING.celsius(max(0.0, now))
        machine, _ = heat.step(machine, heat.Reading(celsius=celsius), now, limits)
        if machine.state is Heat.HOT:
            return now
        warm = heat.severity(machine.known) >= heat.severity(Heat.WARM)
        now += config.scrape.warm_interval_seconds if warm else config.scrape.interval_seconds


class Bench:
    """The guard under test, the farm, and what watches them."""

    def __init__(
        self,
        fleet: Fleet,
        observer: Observer,
        guard: subprocess.Popen[bytes],
        farm: subprocess.Popen[bytes],
        *,
        lawful_seconds: float,
    ) -> None:
        self._fleet = fleet
        self._observer = observer
        self._farm = farm
        self._lawful = lawful_seconds
        self._dead = int(fleet.size * DEAD_RATIO)
        self._target = Target(guard.pid, GUARD_PORT)
        self._order("dead", range(fleet.size - self._dead, fleet.size))

    def _order(self, order: str, numbers: Sequence[int]) -> None:
        assert self._farm.stdin is not None
        for number in numbers:
            self._farm.stdin.write(f"{order} {address_of(number)}\n".encode())
        self._farm.stdin.flush()

    def _page(self) -> str:
        url = f"http://127.0.0.1:{GUARD_PORT}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            text: bytes = answer.read()
        return text.decode()

    def _scrapes(self) -> float:
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in self._page().splitlines()
            if line.startswith("npu_thermal_guard_scrapes_total{")
        )

    def wait_until_judged(self) -> float:
        """Wait until every living node was judged once; return how long it took."""
        begin = time.monotonic()
        wanted = self._fleet.size - self._dead
        while time.monotonic() < begin + _READY_SECONDS:
            # The page is large: asking more often would be the main load.
            time.sleep(self._fleet.size / 500)
            try:
                page = self._page()
            except OSError:
                continue
            if page.count("\nnpu_thermal_guard_node_state{") >= wanted:
                return time.monotonic() - begin
        raise TimeoutError("the guard does not judge all nodes")

    def wait_until_published(self) -> float:
        """Wait until the devices of every living node are published; return how long it took."""
        begin = time.monotonic()
        wanted = self._fleet.size - self._dead
        while time.monotonic() < begin + wanted / _PUBLISHED_PER_SECOND:
            time.sleep(1)
            if len(self._observer.published) >= wanted:
                return time.monotonic() - begin
        raise TimeoutError(f"{len(self._observer.published)} of {wanted} nodes are published")

    def phase(
        self, name: str, heated: Sequence[int], *, pace: float, after: float, brief: bool = False
    ) -> Phase:
        """Heat nodes, one each ``pace`` seconds; look on for ``after`` seconds more.

        ``brief`` ends it as soon as all are closed.
        """
        begin, cpu, scrapes = time.monotonic(), self._target.cpu_seconds(), self._scrapes()
        crossed: dict[str, float] = {}
        peak, lawful = 0.0, self._lawful
        for number in heated:
            self._order("heat", [number])
            crossed[name_of(number)] = time.monotonic() + lawful
            time.sleep(pace)
        until = time.monotonic() + lawful + after
        while time.monotonic() < until:
            peak = max(peak, self._target.rss_mebibytes())
            time.sleep(1)
            if brief and crossed.keys() <= self._observer.closed_at.keys():
                break
        end = time.monotonic()
        used = self._target.cpu_seconds() - cpu
        turns = (self._scrapes() - scrapes) / self._fleet.size
        late = sorted(
            self._observer.closed_at[node] - moment
            for node, moment in crossed.items()
            if node in self._observer.closed_at
        )
        cuts = statistics.quantiles(late, n=100) if len(late) > 1 else []
        return Phase(
            name=name,
            heated=len(crossed),
            tainted=len(late),
            late_p50=cuts[49] if cuts else None,
            late_p99=cuts[98] if cuts else None,
            cores=used / (end - begin),
            rss_mebibytes=peak,
            writes_per_second=self._observer.writes_per_second(begin, end),
            cycle_seconds=(end - begin) / max(turns, 1e-9),
        )


@contextmanager
def _processes(
    folder: Path, kubeconfig: Path, config: str
) -> Iterator[tuple[subprocess.Popen[bytes], ...]]:
    (folder / "guard.yaml").write_text(config)
    farm = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.guard_farm", str(FARM_PORT)],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
    )
    with (folder / "guard.log").open("wb") as log:
        guard = subprocess.Popen(
            [
                *(sys.executable, "-m", "thermal", f"--config={folder / 'guard.yaml'}"),
                *(f"--kubeconfig={kubeconfig}", f"--namespace={NAMESPACE}", "--pod-name=guard"),
                *(f"--exporter-port={FARM_PORT}", f"--plugin-port={FARM_PORT}"),
                f"--bind=127.0.0.1:{GUARD_PORT}",
            ],
            cwd=CHECKOUT,
            stderr=log,
            stdout=log,
        )
        try:
            yield guard, farm
        finally:
            guard.terminate()
            guard.wait(timeout=30)
            assert farm.stdin is not None
            farm.stdin.close()
            farm.wait(timeout=30)


def measure(
    kubeconfig: Path, size: int, trickle: int, *, brief: bool = False, claims: bool = False
) -> dict[str, Any]:
    """Create the fleet and measure; to be run where the API server's loopback is."""
    config = (BRIEF if brief else "") + (CLAIMS if claims else "") or "{}"
    client = Client.from_kubeconfig(kubeconfig)
    fleet = Fleet(client, size, claims=claims)
    begin = time.monotonic()
    fleet.create()
    created = time.monotonic() - begin
    print(f"{size} nodes created in {created:.0f} s", file=sys.stderr)  # noqa: T201
    observer = Observer(client, claims=claims)
    with tempfile.TemporaryDirectory() as folder:
        with _processes(Path(folder), kubeconfig, config) as (guard, farm):
            lawful = seconds_to_hot(msgspec.yaml.decode(config, type=Config))
            bench = Bench(fleet, observer, guard, farm, lawful_seconds=lawful)
            judged = bench.wait_until_judged()
            print(f"all judged after {judged:.0f} s", file=sys.stderr)  # noqa: T201
            published = bench.wait_until_published() if claims else None
            pace = 0.2 if brief else 1.0
            phases = [bench.phase("steady", range(trickle), pace=pace, after=20, brief=brief)]
            if claims or not brief:
                ratio = BRIEF_WAVE_RATIO if brief else WAVE_RATIO
                heated = range(trickle, trickle + int(size * ratio))
                phases.append(bench.phase("wave", heated, pace=0.0, after=30, brief=brief))
        usage = _children()
    return {
        "nodes": size,
        "dead_exporters": int(size * DEAD_RATIO),
        "processors": processors(),
        "load": os.getloadavg()[0],
        "claims": claims,
        "judged_after_seconds": judged,
        "published_after_seconds": published,
        "children_cpu_seconds": usage,
        "phases": [asdict(phase) for phase in phases],
        "missed": [gate for phase in phases for gate in phase.missed()],
    }


def _children() -> float:
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def table(report: dict[str, Any]) -> str:
    """Return the report for people."""
    about = (
        f"{report['nodes']} nodes, {report['dead_exporters']} dead exporters,"
        f" {report['processors']} processors, load {report['load']:.0f}"
    )
    if report["published_after_seconds"] is not None:
        about += f", slices published {report['published_after_seconds']:.0f} s later"
    lines = [
        about,
        "phase   heated tainted  late p50  late p99  cores  RSS MiB  writes/s  cycle s",
    ]
    for row in report["phases"]:
        p50, p99 = (f"{v:8.1f}" if v is not None else "       -" for v in _late(row))
        lines.append(
            f"{row['name']:7} {row['heated']:6} {row['tainted']:7}  {p50}  {p99}"
            f"  {row['cores']:5.2f}  {row['rss_mebibytes']:7.0f}"
            f"  {row['writes_per_second']:8.1f}  {row['cycle_seconds']:7.1f}"
        )
    return "\n".join(lines)


def _late(row: dict[str, Any]) -> tuple[float | None, float | None]:
    return row["late_p50"], row["late_p99"]


def run(
    size: int,
    trickle: int,
    *,
    name: str = "bench-guard",
    brief: bool = False,
    claims: bool = False,
) -> dict[str, Any]:
    """Bring up an API server, measure beside it, take it down again."""
    cluster = Cluster(name)
    cluster.up_api()
    try:
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            subprocess.run(
                [
                    *cluster.beside_the_api(),
                    *(sys.executable, "-m", "tests.bench.guard", "--inside", file.name),
                    *(f"--kubeconfig={cluster.kubeconfig}", f"--nodes={size}"),
                    f"--trickle={trickle}",
                    *(["--brief"] if brief else []),
                    *(["--claims"] if claims else []),
                ],
                cwd=CHECKOUT,
                check=True,
            )
            report: dict[str, Any] = json.loads(Path(file.name).read_text())
    finally:
        cluster.down()
    return report


def main() -> int:
    """Run as the options say; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--trickle", type=int, default=60, help="nodes heated one by one")
    parser.add_argument("--brief", action="store_true", help="one situation, a minute")
    parser.add_argument("--claims", action="store_true", help="nodes of mode dra")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--kubeconfig", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.inside:
        report = measure(
            chosen.kubeconfig,
            chosen.nodes,
            chosen.trickle,
            brief=chosen.brief,
            claims=chosen.claims,
        )
        chosen.inside.write_text(json.dumps(report))
        return 0
    report = run(chosen.nodes, chosen.trickle, brief=chosen.brief, claims=chosen.claims)
    print(table(report))  # noqa: T201
    if chosen.json:
        chosen.json.write_text(json.dumps(report, indent=2) + "\n")
    for missed in report["missed"]:
        print(f"missed: {missed}", file=sys.stderr)  # noqa: T201
    return 1 if report["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""The device plugin against the official Go sample plugin: ``python -m ci.bench.plugin``.

Both run at the same time on this machine, each with a kubelet of its own that is a stopwatch, and
take turns round by round, so that the noise of the machine hits both alike. With ``--pods`` Pods
start on a real cluster, too (:mod:`ci.bench.pods`). The exit code is 1 where a gate is missed. It
needs root.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ci.bench import peers, pods, programs
from ci.bench.figures import Figure, Samples, figures, pod_figures, table
from ci.bench.peers import Peer
from ci.cache import cache_dir
from ci.debian import host_architecture
from images.build import REGISTRY, Builder
from images.services import SERVICES

_CHECKOUT = Path(__file__).resolve().parents[2]
_WARM_UP_CALLS = 100
#: The start of a plugin is noisier than anything else; this long after it nothing is measured.
_SETTLE_SECONDS = 3.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m ci.bench.plugin", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="turns of each plugin")
    parser.add_argument("--calls", type=int, default=250, help="Allocates per turn")
    parser.add_argument("--pause-seconds", type=float, default=0.002, help="between two calls")
    parser.add_argument("--starts", type=int, default=5, help="starts of plugin and of kubelet")
    parser.add_argument("--idle-seconds", type=float, default=30.0, help="time of doing nothing")
    parser.add_argument(
        "--pods", type=int, default=0, help="starts of Pods of each kind, on an embedded cluster"
    )
    parser.add_argument("--cluster", default="bench", help="name of that cluster")
    parser.add_argument("--only-pods", action="store_true", help="measure nothing but Pods")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    options = parser.parse_args(arguments)
    names = ("npu-platform", "Go sample plugin")
    samples = (Samples(), Samples())
    lines: tuple[Figure, ...] = ()
    if not options.only_pods:
        _measure_processes(options, samples)
        lines = figures(*samples)
    if options.pods:
        starts = pods.measure(options.pods, name=options.cluster, say=_say).seconds
        lines += pod_figures(*(starts[kind] for kind in (pods.OURS, programs.PEER_RESOURCE, "")))
    print(table(lines, names))
    if options.json:
        data = {
            "peers": names,
            "kubernetes": programs.KUBERNETES,
            "load": os.getloadavg(),
            "allocateCalls": len(samples[0].allocate),
            "podStarts": options.pods,
            "figures": [line.as_data() for line in lines],
        }
        options.json.write_text(json.dumps(data, indent=2) + "\n")
    return int(any(line.verdict == "missed" for line in lines))


def _measure_processes(options: argparse.Namespace, samples: tuple[Samples, Samples]) -> None:
    image = Builder(_CHECKOUT, cache_dir(), host_architecture()).image(
        SERVICES["plugin"], registry=REGISTRY, tag="bench"
    )
    with (
        tempfile.TemporaryDirectory(prefix="npu-", dir="/tmp") as place,
        peers.both(image, cache_dir(), Path(place)) as pair,
    ):
        _measure(options, pair, samples)


def _measure(
    options: argparse.Namespace, pair: tuple[Peer, Peer], samples: tuple[Samples, Samples]
) -> None:
    both = tuple(zip(pair, samples, strict=True))
    for number in range(options.starts):
        for peer, taken in both:
            peer.stop()
            peer.start_kubelet()
            peer.start()
            known = peer.await_list()
            taken.start_to_registered.append(known.registered - peer.started)
            taken.start_to_list.append(known.listed - peer.started)
        _say(f"start {number + 1} of {options.starts}")
    time.sleep(_SETTLE_SECONDS)
    for peer, _ in both:
        peer.allocate(_WARM_UP_CALLS, options.pause_seconds)
    for number in range(options.rounds):
        # Who comes first changes from round to round.
        for peer, taken in both[:: 1 if number % 2 else -1]:
            taken.allocate += peer.allocate(options.calls, options.pause_seconds)
    _say(f"{options.rounds} rounds of {options.calls} Allocates each")
    for number in range(options.starts):
        for peer, taken in both:
            # The sample plugin's socket is named after the second of its start.
            time.sleep(1.1)
            peer.start_kubelet()
            known = peer.await_list()
            taken.socket_to_list.append(known.listed - known.appeared)
        _say(f"kubelet restart {number + 1} of {options.starts}")
    time.sleep(_SETTLE_SECONDS)
    before = [_cpu_nanoseconds(peer.pid) for peer in pair]
    began = time.monotonic()
    time.sleep(options.idle_seconds)
    lasted = (time.monotonic() - began) * 1e9
    for (peer, taken), earlier in zip(both, before, strict=True):
        taken.idle_ratio = (_cpu_nanoseconds(peer.pid) - earlier) / lasted
        taken.resident = _resident_bytes(peer.pid)


def _cpu_nanoseconds(process: int) -> int:
    """Return the time on a CPU of all threads; ``stat`` would count in ticks of 10 ms."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def _resident_bytes(process: int) -> int:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

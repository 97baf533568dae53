"""How long Pods take to start on a real cluster: without a device, with ours, with Go's sample.

The three kinds take turns on one node of an embedded cluster, where both plugins serve the same
kubelet. Measured is from the request to the API server until the kernel started the container's
process: scheduler, kubelet, Allocate, container runtime.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from kubernetes import client, config

from ci.bench import programs
from ci.cache import cache_dir
from ci.cluster import Cluster, pause
from ci.kube import Kube, until
from npu import catalogue
from npu.layout import expand
from npu.tree import SIMULATED_DEVICE, materialise

OURS: Final = "rockchip.com/npu"
NOTHING: Final = ""
KINDS: Final = (NOTHING, OURS, programs.PEER_RESOURCE)
_CHECKOUT: Final = Path(__file__).resolve().parents[2]
_NAMESPACE: Final = "default"
_SECONDS: Final = 90.0
_POLL_SECONDS: Final = 0.05
_STOP_SECONDS: Final = 10
#: Position of the start time in what follows the name in ``/proc/PID/stat``, see proc(5).
_START_TICKS: Final = 19


@dataclass(slots=True)
class PodStarts:
    """Seconds of each start by kind, in the order of the rounds."""

    seconds: Mapping[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})


def measure(rounds: int, *, name: str, say: Callable[[str], None]) -> PodStarts:
    """Start ``rounds`` Pods of each kind, one after the other, on cluster ``name``.

    A cluster that was not there is removed at the end. The first round is not counted.
    """
    cluster = Cluster(name)
    there = cluster.exists
    cluster.up(nodes=None if there else 1)
    taken = PodStarts()
    try:
        node = cluster.nodes[0]
        config.load_kube_config(str(cluster.kubeconfig))
        api = client.CoreV1Api()
        with _plugins(cluster, node):
            kube = Kube(kubeconfig=cluster.kubeconfig)
            for resource in KINDS[1:]:
                until(
                    partial(kube.allocatable, resource),
                    lambda seen: seen[node] not in (None, "0"),
                    seconds=_SECONDS,
                    what=f"allocatable {resource} on {node}",
                )
            for number in range(rounds + 1):
                turn = number % len(KINDS)
                for kind in (*KINDS[turn:], *KINDS[:turn]):
                    seconds = _start(api, kind, node, number)
                    if number:
                        taken.seconds[kind].append(seconds)
            say(f"{rounds} Pods of each of {len(KINDS)} kinds")
    finally:
        if not there:
            cluster.down()
    return taken


@contextmanager
def _plugins(cluster: Cluster, node: str) -> Iterator[None]:
    """Run both plugins beside the kubelet of ``node``."""
    root = cluster.node_root(node)
    init = root.parts[2]
    sample = programs.build(cache_dir()) / programs.PEER
    with tempfile.TemporaryDirectory(prefix="npu-", dir="/tmp") as place, ExitStack() as stack:
        board = Path(place, "board")
        tree = expand(catalogue.load("rk3588"), SIMULATED_DEVICE)
        materialise(tree, board, device_nodes=True)
        for name, command in (
            (
                "ours",
                (
                    *(sys.executable, "-m", "plugin", f"--root={board}", f"--node-prefix={board}"),
                    *(f"--kubelet-dir={root}/var/lib/kubelet", "--bind=127.0.0.1:0"),
                ),
            ),
            # It has the kubelet's directory built in.
            ("go", ("nsenter", f"--target={init}", "--mount", "--", str(sample))),
        ):
            log = stack.enter_context(Path(place, f"{name}.log").open("wb"))
            process = subprocess.Popen(command, cwd=_CHECKOUT, stdout=log, stderr=log)
            stack.callback(process.wait, _STOP_SECONDS)
            stack.callback(process.terminate)
        yield


def _start(api: client.CoreV1Api, kind: str, node: str, number: int) -> float:
    """Start one Pod, remove it, and return how long its start took."""
    name = f"bench-{number}-{kind.partition('.')[0] or 'nothing'}"
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    api.create_namespaced_pod(_NAMESPACE, _pod(name, kind, node))

    def container() -> str | None:
        statuses = api.read_namespaced_pod(name, _NAMESPACE).status.container_statuses or []
        running = [s.container_id for s in statuses if s.state.running is not None]
        return str(running[0]).rpartition("/")[2] if running else None

    identifier = until(
        container, bool, seconds=_SECONDS, what=f"Pod {name} runs", every=_POLL_SECONDS
    )
    seconds = _started_at(str(identifier)) - began
    api.delete_namespaced_pod(name, _NAMESPACE, grace_period_seconds=1)

    def gone() -> bool:
        try:
            api.read_namespaced_pod(name, _NAMESPACE)
        except client.ApiException as error:
            if error.status == 404:  # noqa: PLR2004 - not found
                return True
            raise
        return False

    until(gone, bool, seconds=_SECONDS, what=f"Pod {name} gone", every=_POLL_SECONDS)
    return seconds


def _pod(name: str, resource: str, node: str) -> dict[str, object]:
    container = {
        "name": "main",
        "image": pause.IMAGE,
        "imagePullPolicy": "Never",
        "resources": {"limits": {resource: "1"}} if resource else {},
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _started_at(container: str) -> float:
    """Return when the process of a container was started, in seconds since boot."""
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and container in (folder / "cgroup").read_text():
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                return int(fields[_START_TICKS]) / os.sysconf("SC_CLK_TCK")
        except (FileNotFoundError, ProcessLookupError):
            continue
    message = f"container {container} has no process on this machine"
    raise LookupError(message)

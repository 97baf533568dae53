"""An API server that hangs or is gone, and what Pods say meanwhile at their own addresses."""

import contextlib
import functools
import signal
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from ci.cluster import Cluster, network, processes
from ci.cluster.processes import Process
from ci.kube import Json, until
from tests.cluster.platform.installed import Platform
from thermal.errors import ApiError
from thermal.kube import Client


@contextmanager
def silent_api_server(cluster: Cluster) -> Iterator[Callable[[], None]]:
    """Let connections to the API server succeed and nothing be answered.

    What is given ends the hanging server, so that connections are refused from then on. At the end
    of the context there is one that answers.
    """
    found = _api_servers(cluster)
    assert len(found) == 1
    processes.send(found, signal.SIGSTOP)
    try:
        yield functools.partial(processes.send, found, signal.SIGKILL)
    finally:
        processes.send(found, signal.SIGCONT)
        if not _api_servers(cluster):
            cluster.restart("apiserver")


def _api_servers(cluster: Cluster) -> list[Process]:
    inode = network.namespace_inode(f"npu-{cluster.name}")
    return [
        process
        for process in processes.running()
        if process.net_namespace == inode and process.program == "kube-apiserver"
    ]


def answers(platform: Platform) -> bool:
    """Tell whether the API server answers within the guard's own time limits."""
    client = Client.from_kubeconfig(platform.cluster.kubeconfig)
    try:
        client.get(f"/api/v1/nodes/{platform.bare}")
    except ApiError:
        return False
    return True


def says(pod: Json, path: str) -> str:
    """Ask a Pod at its address, past the API server; raises OSError, also for a refusal."""
    url = f"http://{pod['status']['podIP']}:8080{path}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: bytes = answer.read()
    return text.decode()


def patiently(check: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until ``check`` holds; a Pod that does not answer is asked again."""

    def seen() -> bool:
        with contextlib.suppress(OSError):
            return check()
        return False

    until(seen, seconds=seconds, what=what)


def leads_no_more(pod: Json) -> bool:
    """Tell whether a guard knows that it does not lead."""
    return "npu_thermal_guard_leader 0.0" in says(pod, "/metrics")


def restarts(pods: Iterable[Json]) -> dict[str, int]:
    """Return how often the containers of each Pod were started again, by UID."""
    return {
        pod["metadata"]["uid"]: sum(
            one["restartCount"] for one in pod["status"]["containerStatuses"]
        )
        for pod in pods
    }


def rest(began: float, seconds: float) -> None:
    """Sleep until ``seconds`` after ``began``, a time of the monotonic clock."""
    time.sleep(max(0.0, began + seconds - time.monotonic()))

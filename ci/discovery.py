"""``python -m ci.discovery NAME``: the Prometheus beside a cluster scrapes the Pods there are.

Debian's Prometheus is built without the Kubernetes discovery. This program does its work: it asks
the API server for Pods and writes the list of targets, over and over, in the cluster's network
namespace, so that it ends with the cluster.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Final

from ci.cluster import Cluster, daemons, network, processes
from ci.cluster.instance import registry
from ci.command import CommandError
from ci.demo.story import NAMESPACE
from ci.kube import Json, Kube
from ci.prometheus import Prometheus

#: What Pods of a service say to be scraped, in this as in many configurations of Prometheus.
ANNOTATION: Final = "prometheus.io/scrape"
_MODULE: Final = "ci.discovery"
_CHECKOUT: Final = Path(__file__).resolve().parents[1]
_EVERY_SECONDS: Final = 2.0
_STOP_SECONDS: Final = 5.0


def chosen(pods: list[Json]) -> tuple[list[Json], list[Json]]:
    """Return the Pods of the platform, and those of services that ask to be scraped.

    A Pod that has ended keeps its address in the API, while another may have it by now.
    """
    running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
    platform = [pod for pod in running if pod["metadata"]["namespace"] == NAMESPACE]
    services = [
        pod
        for pod in running
        if pod["metadata"]["namespace"] != NAMESPACE
        and pod["metadata"].get("annotations", {}).get(ANNOTATION) == "true"
    ]
    return platform, services


def start(cluster: Cluster) -> None:
    """Start the program for a cluster, in place of one that runs; it outlives this process."""
    stop(cluster)
    prometheus = Prometheus.beside(cluster)
    daemons.start(
        [*network.entering(prometheus.namespace), sys.executable, "-m", _MODULE, cluster.name],
        log=prometheus.directory / "discovery.log",
        environment=os.environ | {"PYTHONPATH": str(_CHECKOUT)},
    )


def stop(cluster: Cluster) -> None:
    """End the program if it runs: targets stay as they are."""
    inode = network.namespace_inode(Prometheus.beside(cluster).namespace)
    processes.end(
        lambda process: process.net_namespace == inode and _MODULE in process.argv,
        patience_seconds=_STOP_SECONDS,
        what="the discovery of Pods",
    )


def follow(cluster: Cluster) -> None:
    """Write the list of targets until there is no such cluster; say why where that fails."""
    prometheus, kube = Prometheus.beside(cluster), Kube(kubeconfig=cluster.kubeconfig)
    said = ""
    while registry().read(cluster.name) is not None:
        try:
            prometheus.scrape(*chosen(kube.items("pods", "--all-namespaces")))
            problem = ""
        except (CommandError, OSError) as error:
            problem = str(error)
        if problem != said:
            print(problem or "the API server answers again", file=sys.stderr, flush=True)
            said = problem
        time.sleep(_EVERY_SECONDS)


def main(arguments: list[str] | None = None) -> int:
    """Follow the Pods of one cluster."""
    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}", description=__doc__)
    parser.add_argument("name", help="name of the embedded cluster")
    follow(Cluster(parser.parse_args(arguments).name))
    return 0


if __name__ == "__main__":
    sys.exit(main())

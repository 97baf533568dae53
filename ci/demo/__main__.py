"""``python -m ci.demo up|autoscale|env|kubeconfig|down``: the demonstration of ``make demo``."""

import argparse
import os
import sys
from pathlib import Path

from ci.cluster import Cluster
from ci.command import CommandError
from ci.demo import autoscale, shell
from ci.demo.report import Report
from ci.demo.story import NAMESPACE, Story
from ci.images import build_images, load_images
from ci.kube import Kube, WaitError
from ci.prometheus import Prometheus

_NODES = 2


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 when every step passed."""
    parser = argparse.ArgumentParser(prog="python -m ci.demo", description=__doc__)
    parser.add_argument("command", choices=["up", "autoscale", "env", "kubeconfig", "down"])
    parser.add_argument("--name", default="demo", help="name of the embedded cluster")
    options = parser.parse_args(arguments)
    try:
        if options.command == "down":
            Cluster(options.name).down()
        elif options.command == "kubeconfig":
            print(Cluster(options.name).kubeconfig)
        elif options.command == "env":
            autoscale.running(Cluster(options.name))
            print(shell.lines(shell.variables(Cluster(options.name))))
        elif options.command == "autoscale":
            _add_autoscaling(Cluster(options.name))
        elif os.environ.get("KUBECONFIG") or os.environ.get("CONTEXT"):
            return _on_given_cluster()
        else:
            return _on_embedded_cluster(options.name)
    except (RuntimeError, OSError, WaitError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def _on_embedded_cluster(name: str) -> int:
    cluster, report = Cluster(name), Report()
    with report.step(f"a {_NODES}-node Kubernetes comes up") as step:
        cluster.up(nodes=_NODES)
        step.found = f"{cluster.version}: {', '.join(cluster.nodes)}"
    with report.step("images are built and imported") as step:
        step.found = f"{len(load_images(cluster))} images on {len(cluster.nodes)} nodes"
    kube = Kube(kubeconfig=cluster.kubeconfig)
    passed = _tell(Story(kube=kube, report=report))
    prometheus = Prometheus.beside(cluster)
    pods = kube.items("pods", "-n", NAMESPACE)
    prometheus.start(pods)
    page = next(
        (
            f"http://{pod['status']['podIP']}:8080/"
            for pod in pods
            if pod["metadata"]["labels"].get("app.kubernetes.io/component") == "exporter"
        ),
        "(no exporter runs)",
    )
    print(f"\n{report.table()}\n")
    print(
        f"The cluster stays up. Look further:\n"
        f'  eval "$(make -s demo-env)"     # kubectl, helm, kubectl npu, KUBECONFIG\n'
        f"  kubectl get nodes,pods -A; kubectl npu top\n"
        f"  board page   {page}\n"
        f"  metrics      {page}metrics\n"
        f"  Prometheus   {prometheus.url}\n"
        f"A team and a service that grows: make demo-autoscale, docs/walkthrough.md\n"
        f"Remove it, leaving nothing: make demo-down"
    )
    return 0 if passed else 1


def _add_autoscaling(cluster: Cluster) -> None:
    report = Report()
    autoscale.add(cluster, report)
    print(
        f"\n{report.table()}\n\n"
        f"For your shell (kubectl, helm, kubectl npu, addresses):\n"
        f'  eval "$(make -s demo-env)"\n'
        f"What to do with it: docs/walkthrough.md. Remove it, leaving nothing: make demo-down"
    )


def _on_given_cluster() -> int:
    file = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    registry = os.environ.get("REGISTRY")
    kube = Kube(kubeconfig=Path(file), context=os.environ.get("CONTEXT"))
    report = Report()
    values = (f"image.registry={registry}",) if registry else ()
    story = Story(kube=kube, report=report, values=values)
    print(f"Using the cluster of {file}, context {kube.context or '(current)'}.")
    story.spare_real_boards()
    if registry:
        print(f"Images come from {registry}.")
    else:
        archives = build_images()
        print(
            "Its nodes need the images, and this program does not log in to them. On each node:\n"
            + "\n".join(f"  ctr -n k8s.io images import {archive}" for archive in archives)
            + "\nor put them into a registry and give REGISTRY=registry.example/npu-platform."
        )
    passed = _tell(story)
    print(f"\n{report.table()}\n\nRemove it: helm uninstall npu --namespace {NAMESPACE}")
    return 0 if passed else 1


def _tell(story: Story) -> bool:
    try:
        story.install()
        story.advertised()
        node = story.sample_gets_npu()
        story.load_rises(node)
        story.node_gets_hot(node)
        story.next_pod_avoids(node)
        story.node_cools(node)
    except (WaitError, CommandError) as error:
        print(f"\ndemo: {error}", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())

"""Command line of the embedded cluster: ``python -m ci.cluster``."""

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ci import containerd, kubernetes
from ci.cluster import host
from ci.cluster.cluster import RESTARTABLE, Cluster
from ci.cluster.instance import registry

_Command = Callable[[Cluster, argparse.Namespace], int]
_AS_ANYBODY = frozenset({"kubeconfig", "logs"})


def _up(cluster: Cluster, options: argparse.Namespace) -> int:
    cluster.up(nodes=options.nodes, version=options.kubernetes, containerd=options.containerd)
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    return 0


def _down(cluster: Cluster, _options: argparse.Namespace) -> int:
    cluster.down()
    return 0


def _status(cluster: Cluster, _options: argparse.Namespace) -> int:
    names = registry().names()
    others = ", ".join(name for name in names if name != cluster.name)
    if cluster.name not in names:
        print(f"there is no cluster {cluster.name}" + (f"; others: {others}" if others else ""))
        return 1
    rows = cluster.status()
    print(f"cluster {cluster.name}, Kubernetes {cluster.version}, {cluster.kubeconfig}")
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for what, state, detail in rows:
        print(f"  {what:<{widths[0]}}  {state:<{widths[1]}}  {detail}")
    if others:
        print(f"other clusters: {others}")
    healthy = all(state in {"running", "Ready"} for _, state, _ in rows)
    return 0 if healthy else 1


def _kubeconfig(cluster: Cluster, _options: argparse.Namespace) -> int:
    print(cluster.kubeconfig)
    return 0 if cluster.kubeconfig.exists() else 1


def _exec(cluster: Cluster, options: argparse.Namespace) -> int:
    return cluster.exec_interactive(options.node, options.argv)


def _restart(cluster: Cluster, options: argparse.Namespace) -> int:
    cluster.restart(options.what, options.node)
    return 0


def _power(cluster: Cluster, options: argparse.Namespace) -> int:
    act = cluster.stop_node if options.action == "stop" else cluster.start_node
    act(options.node)
    return 0


def _logs(cluster: Cluster, options: argparse.Namespace) -> int:
    files = cluster.logs()
    if options.component is None:
        for component, path in files.items():
            print(f"{component}\t{path}")
        return 0
    if options.component not in files:
        print(f"no log {options.component!r}: known are {', '.join(files)}", file=sys.stderr)
        return 1
    follow = ["--follow"] if options.follow else []
    show = ["tail", f"--lines={options.lines}", *follow, str(files[options.component])]
    return subprocess.run(show, check=False).returncode


def _load(cluster: Cluster, options: argparse.Namespace) -> int:
    for name in cluster.load_images(options.archives):
        print(name)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ci.cluster",
        description="Real Kubernetes on this machine, without Docker and without a registry.",
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--name", default="demo", help="which cluster (default: %(default)s)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: _Command, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text, parents=[common])
        added.set_defaults(run=run)
        return added

    up = command("up", _up, "bring a cluster up, or what is missing of it")
    up.add_argument("--nodes", type=int, help="number of nodes (default for a new cluster: 2)")
    up.add_argument(
        "--kubernetes",
        metavar="VERSION",
        help=f"version, built on first use (default: {kubernetes.DEFAULT_VERSION})",
    )
    up.add_argument(
        "--containerd",
        metavar="VERSION",
        help=f"2.X.Y, built on first use, e.g. {containerd.DEFAULT_VERSION} (default: Debian's)",
    )
    command("down", _down, "take a cluster down and leave nothing of it")
    command("status", _status, "show a cluster and its parts")
    command("kubeconfig", _kubeconfig, "print the path of the administrator's kubeconfig")
    run = command("exec", _exec, "run a command inside a node: exec NODE -- COMMAND")
    run.add_argument("node")
    run.add_argument("argv", nargs="+", metavar="COMMAND")
    restart = command("restart", _restart, "restart one program of the cluster")
    restart.add_argument("what", choices=sorted(RESTARTABLE))
    restart.add_argument("node", nargs="?", help="default: all nodes")
    power = command("node", _power, "cut the power of a node, or switch it on")
    power.add_argument("action", choices=["stop", "start"])
    power.add_argument("node")
    logs = command("logs", _logs, "show the end of a log; without COMPONENT list the logs")
    logs.add_argument("component", nargs="?")
    logs.add_argument("--lines", type=int, default=50)
    logs.add_argument("--follow", "-f", action="store_true")
    load = command("load-image", _load, "import image archives on all nodes")
    load.add_argument("archives", nargs="+", type=Path, metavar="TAR")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status: 1 for a failure, 2 for wrong usage."""
    options = _parser().parse_args(arguments)
    run: _Command = options.run
    try:
        if options.command not in _AS_ANYBODY:
            host.require_root()
        return run(Cluster(options.name), options)
    except (RuntimeError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())

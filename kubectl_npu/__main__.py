"""``kubectl npu``: command line."""

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence

from kubectl_npu import doctor, questions, render, top, who, why_node, why_pod
from kubectl_npu.client import Client, Kubectl, KubectlError
from kubectl_npu.finding import Finding, exit_code, fail
from kubectl_npu.gather import Reader
from kubectl_npu.picture import Picture, name_of
from kubectl_npu.top import DeviceRow
from kubectl_npu.who import HolderRow

#: What a command prints one of per line.
Item = DeviceRow | HolderRow | Finding

#: As shells tell that SIGINT ended a program.
_INTERRUPTED = 130
_LONGEST_SECONDS = 3600
_DESCRIPTION = "NPUs of a cluster: who has them, how they are, and why a Pod has none."


def main(arguments: Sequence[str] | None = None, client: Client | None = None) -> int:
    """Run a command and return its exit code: 0, 1 where something failed, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that knows few characters shows the others by number.
        sys.stdout.reconfigure(errors="backslashreplace")
    reader = Reader(
        client=client or Kubectl(options=_passed_on(options)),
        platform_namespace=options.platform_namespace,
    )
    try:
        code: int = options.command(reader, options)
        sys.stdout.flush()
    except KubectlError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe, as `head`, has seen enough.
        _write_no_more()
        return 0
    except OSError as error:
        _write_no_more()
        sys.stderr.write(f"output: {error.strerror}\n")
        return 1
    if options.output != "json":
        for line in reader.missing:
            sys.stderr.write(f"note: {line}\n")
    return code


def _write_no_more() -> None:
    """Keep the interpreter from trying again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _top(reader: Reader, options: argparse.Namespace) -> int:
    picture = reader.objects(options.namespace, options.resource)
    picture = reader.with_guard(picture)
    only = options.node or None
    picture = reader.with_metrics(picture, interval_seconds=options.interval, only=only)
    rows = [row for row in top.rows(picture) if only is None or row.node in only]
    return _print(reader, options, rows, lambda: render.pretty(render.devices(rows)))


def _who(reader: Reader, options: argparse.Namespace) -> int:
    picture = reader.objects(options.namespace, options.resource)
    picture = reader.with_shares(reader.with_holders(picture), options.namespace)
    rows = list(who.rows(picture, options.namespace))
    return _print(reader, options, rows, lambda: render.pretty(render.holders(rows)))


def _why(reader: Reader, options: argparse.Namespace) -> int:
    picture = reader.objects(options.namespace, options.resource)
    name = options.name.removeprefix("node/").removeprefix("pod/")
    node = next((item for item in picture.nodes if name_of(item) == name), None)
    if node is not None and not options.name.startswith("pod/"):
        picture = reader.with_allocations(reader.with_guard(picture, decisions_of=name), name)
        found = list(why_node.explain(node, picture))
    else:
        found = list(_why_pod(reader, picture, name, options.namespace))
    return _print(reader, options, found, lambda: render.findings_text(found))


def _why_pod(
    reader: Reader, picture: Picture, name: str, namespace: str | None
) -> Sequence[Finding]:
    if "/" in name:
        namespace, _, name = name.partition("/")
    where = namespace or _default_namespace(reader)
    for pod in picture.pods:
        if (pod["metadata"].get("namespace"), name_of(pod)) == (where, name):
            picture = reader.with_holders(reader.with_guard(picture))
            return list(why_pod.explain(pod, picture))
    told = list(why_pod.refused(name, where, reader.with_refusals(picture, where)))
    return told or [
        fail(
            "name",
            f"there is no node {name}, no Pod {where}/{name}, and no controller of that name was "
            "refused a Pod lately",
            "`kubectl npu why -n NAMESPACE NAME`; events are kept for an hour",
        )
    ]


def _doctor(reader: Reader, options: argparse.Namespace) -> int:
    found = list(questions.checks(doctor.gather(reader, options.resource)))
    _print(reader, options, found, lambda: render.findings_text(found))
    return exit_code(found)


def _print(
    reader: Reader, options: argparse.Namespace, items: Sequence[Item], text: Callable[[], str]
) -> int:
    sys.stdout.write(render.as_json(items, reader.missing) if options.output == "json" else text())
    return 0


def _default_namespace(reader: Reader) -> str:
    told = reader.client.run("config", "view", "--minify", "-o", "jsonpath={..namespace}").strip()
    return told or "default"


def _passed_on(options: argparse.Namespace) -> list[str]:
    names = ("context", "kubeconfig")
    return [f"--{name}={value}" for name in names if (value := getattr(options, name)) is not None]


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= _LONGEST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 0 to {_LONGEST_SECONDS} seconds")
    return seconds


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-n", "--namespace", help="of the Pods [default: all; of `why`: yours]")
    common.add_argument("--context", help="as of kubectl")
    common.add_argument("--kubeconfig", help="as of kubectl")
    common.add_argument("-o", "--output", choices=("table", "json"), default="table")
    common.add_argument(
        "--resource",
        action="append",
        default=[],
        help="a resource name of yours, repeatable [default: those of our vendors' domains]",
    )
    common.add_argument(
        "--platform-namespace",
        default="npu-platform",
        help="of the release, where Pods of all namespaces may not be listed [%(default)s]",
    )
    parser = argparse.ArgumentParser(
        prog="kubectl npu", description=_DESCRIPTION, allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, command, what in (
        ("top", _top, "each NPU now: load per core, heat, clock, holders"),
        ("who", _who, "which Pod has which NPU, whose it is, since when"),
        ("why", _why, "why a node or Pod has no NPU, with what to do"),
        ("doctor", _doctor, "six questions to a cluster whose NPU Pods do not run"),
    ):
        made = commands.add_parser(
            name, help=what, description=f"{what}.", parents=[common], allow_abbrev=False
        )
        made.set_defaults(command=command)
        if name == "top":
            made.add_argument("node", nargs="*", metavar="NODE", help="only these")
            made.add_argument(
                "--interval",
                type=_seconds,
                default=2.0,
                metavar="SECONDS",
                help="over which load is measured; 0 leaves it out [%(default)s]",
            )
        if name == "why":
            made.add_argument("name", metavar="NODE|[NAMESPACE/]POD|WORKLOAD")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""``python -m npu``: look at a board, list the catalogue, write a simulated tree, capture."""

import argparse
import json
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from npu.errors import BoardError, NpuError
from npu.host import Host


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 also where there is no NPU, 1 where it fails, 2 for a bad board."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except ModuleNotFoundError as error:
        # Looking at a board and capturing it need Python alone, the catalogue does not.
        print(
            f"npu: {error}; this command needs the packages of the project, which `make` installs: "
            "$(make -s python) -m npu …",
            file=sys.stderr,
        )
        return 1
    except (NpuError, OSError) as error:
        print(f"npu: {error}", file=sys.stderr)
        return 2 if isinstance(error, BoardError) else 1


def _scan(options: argparse.Namespace) -> int:
    from npu.report import as_data, as_text
    from npu.scan import scan

    host = Host(options.root, options.node_prefix, proc=options.proc)
    inventory = scan(host)
    if options.json:
        text = json.dumps(as_data(host, inventory), indent=2, ensure_ascii=False)
    else:
        text = as_text(host, inventory)
    # Names of files need not be UTF-8.
    print(text.encode(errors="backslashreplace").decode())
    return 0


def _boards(_options: argparse.Namespace) -> int:
    from npu import catalogue

    for name in catalogue.names():
        print(f"{name:<20} {catalogue.load(name).title}")
    return 0


def _simulate(options: argparse.Namespace) -> int:
    from npu import catalogue
    from npu.layout import expand
    from npu.tree import SIMULATED_DEVICE, materialise

    path = Path(options.board)
    # A name has no slash and no ending: everything else is a file, such as a capture.
    board = (
        catalogue.load(path.stem, path.parent)
        if path.suffix == ".yaml"
        else catalogue.load(options.board)
    )
    tree = expand(board, SIMULATED_DEVICE)
    materialise(tree, options.directory, device_nodes=options.device_nodes)
    print(f"wrote {options.board} to {options.directory}")
    return 0


def _capture(options: argparse.Namespace) -> int:
    import os

    from npu.capture import describe

    machine = os.uname().nodename
    names = {machine, machine.split(".")[0], *options.strip}
    text = describe(Host(options.root, proc=options.proc), options.name, names)
    sys.stdout.write(text)
    print(
        f"captured {len(text.splitlines())} lines. Read them before you publish them; "
        "docs/new-board.md says how to go on",
        file=sys.stderr,
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m npu", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    scan = commands.add_parser("scan", help="show the NPUs of this board, and why one is refused")
    scan.add_argument("--root", default="/", help="where the board's / is seen [default /]")
    _add_proc(scan)
    scan.add_argument(
        "--node-prefix", default="", metavar="PREFIX", help="put before node paths in the output"
    )
    scan.add_argument("--json", action="store_true", help="print one JSON object")
    scan.set_defaults(run=_scan)
    boards = commands.add_parser("boards", help="list the catalogue of boards")
    boards.set_defaults(run=_boards)
    simulate = commands.add_parser("simulate", help="write the tree of a board of the catalogue")
    simulate.add_argument("board", metavar="BOARD", help="name, or path of a .yaml file")
    simulate.add_argument("directory", metavar="DIR", type=Path)
    simulate.add_argument(
        "--device-nodes", action="store_true", help="make character devices (needs CAP_MKNOD)"
    )
    simulate.set_defaults(run=_simulate)
    capture = commands.add_parser("capture", help="print this machine as a board, for a fixture")
    capture.add_argument("name", metavar="NAME", type=_board_name, help="for example radxa-zero-3")
    capture.add_argument("--root", default="/", help="where the board's / is seen [default /]")
    _add_proc(capture)
    capture.add_argument(
        "--strip",
        action="append",
        default=[],
        metavar="WORD",
        help="blot out this word, too, such as the node's name, which a container does not know",
    )
    capture.set_defaults(run=_capture)
    return parser


def _add_proc(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--proc",
        metavar="DIR",
        help="where the board's /proc is seen, if not below the root; in a container with the"
        " board's / elsewhere its own /proc tells the same of drivers",
    )


def _board_name(text: str) -> str:
    if re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,40}[a-z0-9])?", text) is None:
        raise argparse.ArgumentTypeError("small letters, digits, dots and hyphens only")
    return text


if __name__ == "__main__":
    # `… | head` ends this program as it ends others, without a traceback.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())

"""``python -m thermal replay TRACE``: try settings on recorded temperatures."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from daemon import config as configuration
from daemon.options import EXIT_CONFIGURATION
from thermal.config import Config
from thermal.replay import plot, report, trace
from thermal.replay.run import replay


def main(arguments: Sequence[str]) -> int:
    """Replay a trace; 2 where trace or settings cannot be read."""
    chosen = _parser().parse_args(arguments)
    try:
        recorded = trace.read(chosen.trace)
        settings = {
            "default" if chosen.thresholds is None else _title(chosen.thresholds): (
                Config()
                if chosen.thresholds is None
                else configuration.load(chosen.thresholds, Config)
            )
        }
        if chosen.compare is not None:
            title = _title(chosen.compare)
            if title in settings:
                title = f"{title} (compared)"
            settings[title] = configuration.load(chosen.compare, Config)
        replayed = {name: replay(recorded, config) for name, config in settings.items()}
        if chosen.plot is not None:
            chosen.plot.write_text(plot.svg(recorded, replayed))
    except (configuration.ConfigError, trace.TraceError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201 (a command line tool)
        return EXIT_CONFIGURATION
    reports = {name: report.report(recorded, one) for name, one in replayed.items()}
    if chosen.json:
        print(json.dumps(reports, indent=2))  # noqa: T201
    else:
        print(report.as_text(reports))  # noqa: T201
    return 0


def _title(path: Path) -> str:
    return path.stem


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m thermal replay",
        description="Run the guard's policy over recorded temperatures, and count what it does.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "trace",
        type=Path,
        metavar="TRACE",
        help="CSV with seconds,node,device,celsius[,busy][,clock_hz], or the JSON answer to a"
        " Prometheus range query; may be gzipped",
    )
    parser.add_argument(
        "--thresholds",
        type=Path,
        metavar="FILE",
        help="configuration of the guard, whole or in part; without it, its defaults",
    )
    parser.add_argument(
        "--compare", type=Path, metavar="FILE", help="a second configuration, beside the first"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write an SVG picture")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser

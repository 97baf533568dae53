"""``python -m ci.fresh run``: the demonstration on a stranger's machine."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ci.cache import cache_dir
from ci.cluster import host
from ci.fresh import image, machine, visitor
from ci.fresh.machine import Machine
from ci.fresh.record import Record
from ci.lock import exclusive

_POLL_SECONDS: Final = 0.5
_OFF_SECONDS: Final = 60.0
_WORK_PREFIX: Final = "run-"


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status is the visit's."""
    parser = argparse.ArgumentParser(prog="python -m ci.fresh", description=__doc__)
    parser.add_argument("command", choices=["run"])
    parser.add_argument("--minutes", type=float, default=90.0, help="limit (default: %(default)s)")
    parser.add_argument(
        "--patience",
        type=float,
        default=10.0,
        help="factor on the demonstration's time limits (NPU_PATIENCE, default: %(default)s)",
    )
    parser.add_argument("--nice", type=int, default=0, help="niceness of the emulator")
    options = parser.parse_args(arguments)
    home = cache_dir() / "fresh"
    try:
        host.require_root()
        with exclusive(home / "lock", reason="it is running the emulated guest"):
            return _visit(home, options)
    except (RuntimeError, OSError) as error:
        print(f"fresh: {error}", file=sys.stderr)
        return 1


def _visit(home: Path, options: argparse.Namespace) -> int:
    for left in home.glob(f"{_WORK_PREFIX}*"):
        shutil.rmtree(left)
    logs = home / "log"
    logs.mkdir(exist_ok=True)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {line}", flush=True)

    with tempfile.TemporaryDirectory(dir=home, prefix=_WORK_PREFIX) as name:
        work = Path(name)
        say(f"the disk of a bare Debian {image.SUITE}")
        disk = image.provide(home)
        say("the visitor's disk: the committed state, built programs and images")
        brought = visitor.make(work, cache_dir(), os.environ, patience=options.patience)
        guest = Machine(
            kernel=disk.kernel,
            initrd=disk.initrd,
            disk=disk.disk,
            visitor=brought,
            console=logs / "console.log",
            report=logs / "report.log",
        )
        guest.report.write_text("")
        say(f"switched on; console: {guest.console}")
        record = Record(began=time.monotonic())
        limit = record.began + options.minutes * 60
        with machine.running(guest, work=work, niceness=options.nice) as process:
            for line in _lines(guest.report):
                if line is not None:
                    record.take(line, time.monotonic())
                    say(f"| {line.rstrip()}")
                elif record.status is not None or process.poll() is not None:
                    break
                elif time.monotonic() > limit:
                    say(f"no end after {options.minutes:g} minutes: switched off")
                    break
                else:
                    time.sleep(_POLL_SECONDS)
            _await_off(process)
    print("\n".join(["", *record.demo_table(), "", *record.table()]))
    if record.status is None:
        print(f"\nfresh: the guest ended without a result; see {guest.console}", file=sys.stderr)
        return 1
    return record.status


def _lines(report: Path) -> Iterator[str | None]:
    """Yield each complete line of a growing file, and None whenever there is none yet."""
    with report.open(errors="replace") as text:
        part = ""
        while True:
            part += text.readline()
            if part.endswith("\n"):
                yield part
                part = ""
            else:
                yield None


def _await_off(process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _OFF_SECONDS
    while process.poll() is None and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    sys.exit(main())

"""Start programs that outlive this one, and tell whether they serve."""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_QUOTED_LINES = 12
_LISTEN = "0A"
_ROTATE_BYTES = 32 << 20


class DaemonError(RuntimeError):
    """A program of the cluster did not come up."""


def start(argv: Sequence[str | Path], *, log: Path, environment: Mapping[str, str]) -> None:
    """Start ``argv`` in a session of its own, its output appended to ``log``."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > _ROTATE_BYTES:
        log.replace(log.with_suffix(".1.log"))
    with log.open("ab") as output:
        # setsid forks: the program is adopted by init and leaves no zombie with the caller.
        subprocess.run(
            ["setsid", "--fork", *map(str, argv)],
            cwd="/",
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=True,
        )


def tail(log: Path) -> str:
    """Return the last lines of a log, indented, for an error message."""
    try:
        lines = log.read_text(errors="replace").splitlines()[-_QUOTED_LINES:]
    except OSError:
        lines = ["(no log)"]
    return "\n".join(f"  {line}" for line in lines)


def listens(pid: int, port: int) -> bool:
    """Tell whether a TCP port is open in the network namespace of process ``pid``."""
    suffix = f":{port:04X}"
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[1].endswith(suffix) and fields[3] == _LISTEN:
                    return True
    return False

"""Grafana's own schema of dashboards, as a small program around its published Go types.

`grafana-foundation-sdk` is generated from the schemas in Grafana's source, those of panels and
queries included.
Its builders are not used: they leave out or hide more than they save.
"""

import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ci import gotool
from ci.cache import cache_dir
from ci.command import run
from ci.lock import exclusive

_SOURCE = Path(__file__).with_suffix(".go")
_MODULE = "github.com/grafana/grafana-foundation-sdk/go"
_VERSION = "v0.0.22"
_GO_MOD = f"module npu-platform.invalid/dashboards\n\ngo 1.24\n\nrequire {_MODULE} {_VERSION}\n"
_GO_SUM = f"""\
{_MODULE} {_VERSION} h1:bE+NJ+nE/ouwQaXtPQTz98yIzevuXlyZ4L5pdPLyiC4=
{_MODULE} {_VERSION}/go.mod h1:48EA8jF85SrReYflLa39Sk34b6NpxwJPBwjF3TJgRpE=
"""


def program(cache: Path | None = None) -> Path:
    """Return the path of the checking program, compiled on first use."""
    root = cache or cache_dir()
    inputs = _SOURCE.read_text() + _GO_MOD + _GO_SUM + gotool.VERSION
    folder = root / "dashboards" / hashlib.sha256(inputs.encode()).hexdigest()[:16]
    path = folder / "dashboards"
    with exclusive(root / "dashboards" / ".lock", reason="it is building the dashboard checker"):
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as work:
                Path(work, "main.go").write_text(_SOURCE.read_text())
                Path(work, "go.mod").write_text(_GO_MOD)
                Path(work, "go.sum").write_text(_GO_SUM)
                run(
                    [
                        *(gotool.go(root), "build", "-trimpath", "-buildvcs=false"),
                        *("-ldflags", "-s -w", "-o", path.name, "."),
                    ],
                    purpose="build the dashboard checker",
                    cwd=Path(work),
                    env=gotool.environment(root),
                    timeout_seconds=600,
                )
                Path(work, path.name).rename(path)
    return path


def problems(files: Sequence[Path]) -> list[str]:
    """Return what Grafana's schema refuses in the files, a line each."""
    done = subprocess.run(
        [program(), *files], capture_output=True, text=True, timeout=60, check=False
    )
    return (done.stdout + done.stderr).splitlines()

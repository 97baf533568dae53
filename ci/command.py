"""Run a program and explain its failure in one readable error."""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_QUOTED_LINES = 12


class CommandError(RuntimeError):
    """A program could not be started, ran out of time or ended with a non-zero status."""


def run(
    argv: Sequence[str | Path],
    *,
    purpose: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout_seconds: float | None = None,
) -> str:
    """Run ``argv`` to its end and return what it printed on standard output.

    ``purpose`` completes the sentence "could not …" and names what was attempted, for the
    reader of the error. Raises ``CommandError`` with the command and its last lines.
    """
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env=dict(env) if env is not None else None,
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
            check=False,
        )
    except OSError as error:
        message = f"could not {purpose}: {words[0]}: {error.strerror}"
        raise CommandError(message) from error
    except subprocess.TimeoutExpired as error:
        message = f"could not {purpose}: {words[0]} did not end within {timeout_seconds:g} s"
        raise CommandError(message) from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        message = (
            f"could not {purpose}: `{shlex.join(words)}` ended with status {done.returncode}:\n"
            + "\n".join(f"  {line}" for line in said[-_QUOTED_LINES:])
        )
        raise CommandError(message)
    return done.stdout

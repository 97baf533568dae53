"""Command line options that double as environment variables.

Order: flag, then environment, then default; ``--help`` names all three. An unknown variable with
the program's prefix is a mistake somebody would search for long: it is handed back for a warning.
"""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from daemon.http import parse_bind
from daemon.version import VERSION

T = TypeVar("T")

#: Exit code for a configuration that cannot work, before anything was touched.
EXIT_CONFIGURATION = 2
_MAX_PORT = 65535


class Options:
    """An argument parser whose every option also reads ``<prefix>_<NAME>``.

    ``prefix`` is for example ``NPU_PLUGIN``; ``environment`` is a parameter for tests.
    """

    def __init__(
        self,
        program: str,
        *,
        prefix: str,
        description: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._environment = os.environ if environment is None else environment
        self._prefix = prefix
        self._known: set[str] = set()
        self.parser = argparse.ArgumentParser(
            prog=f"python -m {program}", description=description, allow_abbrev=False
        )
        self.parser.add_argument("--version", action="version", version=f"{program} {VERSION}")

    def add(
        self, name: str, default: T, text: str, *, kind: Callable[[str], T] | None = None
    ) -> None:
        """Add option ``--name``; ``kind`` converts a string (default: the default's own type)."""
        variable = f"{self._prefix}_{name.replace('-', '_').upper()}"
        self._known.add(variable)
        given = self._environment.get(variable)
        self.parser.add_argument(
            f"--{name}",
            # argparse converts a string default with `type`, so a bad variable is reported too.
            default=default if given is None else given,
            type=kind or type(default),
            metavar=name.rsplit("-", maxsplit=1)[-1].upper(),
            help=f"{text} [env {variable}; default {default}]",
        )

    def add_flag(self, name: str, text: str) -> None:
        """Add the switch ``--name``, off by default; its variable takes true or false."""
        variable = f"{self._prefix}_{name.replace('-', '_').upper()}"
        self._known.add(variable)
        given = self._environment.get(variable, "false").lower()
        if given not in ("true", "false"):
            self.parser.error(f"{variable} must be true or false, not {given!r}")
        self.parser.add_argument(
            f"--{name}",
            action=argparse.BooleanOptionalAction,
            default=given == "true",
            help=f"{text} [env {variable}]",
        )

    def add_common(self, *, port: int = 8080) -> None:
        """Add what every service has: address, logging."""
        self.add("bind", f"[::]:{port}", "address and port of the HTTP server", kind=bind_address)
        self.add("log-level", "info", "debug, info, warning or error", kind=log_level)
        self.add("log-format", "json", "json or text", kind=log_format)

    def unknown_variables(self) -> list[str]:
        """Return variables of the environment that look like options and are none."""
        return sorted(
            name
            for name in self._environment
            if name.startswith(f"{self._prefix}_") and name not in self._known
        )

    def parse(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """Parse; a mistake ends the process with code 2 and a line that names the option."""
        return self.parser.parse_args(arguments)


def bind_address(text: str) -> str:
    """Accept an address with a port; the address need not exist on this machine."""
    try:
        parse_bind(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def port(text: str) -> int:
    """Accept the number of a port that can be connected to."""
    value = (
        int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_PORT)) else 0
    )
    if not 0 < value <= _MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, 1 to {_MAX_PORT}")
    return value


def log_level(text: str) -> str:
    """Accept a level name."""
    level = text.lower()
    if level not in ("debug", "info", "warning", "error"):
        raise argparse.ArgumentTypeError(f"{text!r} is not debug, info, warning or error")
    return level


def log_format(text: str) -> str:
    """Accept a log format name."""
    if text not in ("json", "text"):
        raise argparse.ArgumentTypeError(f"{text!r} is not json or text")
    return text


def positive_seconds(text: str) -> float:
    """Accept a positive number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return value


def absolute_path(text: str) -> Path:
    """Accept an absolute path."""
    if not text.startswith("/"):
        raise argparse.ArgumentTypeError(f"{text!r} is not an absolute path")
    return Path(text)

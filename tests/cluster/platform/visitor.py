"""Somebody who follows a page of the documentation by typing its commands."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ci.command import run
from ci.demo.story import ROOT
from ci.patience import patient
from tests.unit.docs.pages import commands


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Types commands of ``page`` in the checkout, in a shell with ``environment``."""

    page: Path
    environment: Mapping[str, str]
    typed: set[str] = field(default_factory=set)

    def types(self, part: str) -> str:
        """Run the one command of the page with ``part`` in it and return what it printed.

        Raises ``ci.command.CommandError`` where it fails.
        """
        (command,) = {command for command in commands(self.page) if part in command}
        self.typed.add(command)
        return run(
            ["bash", "-c", command],
            purpose=f"follow {self.page.name}",
            cwd=ROOT,
            env=self.environment,
            timeout_seconds=patient(240),
        )

    def left_out(self) -> set[str]:
        """Return the commands of the page that were not typed."""
        return set(commands(self.page)) - self.typed

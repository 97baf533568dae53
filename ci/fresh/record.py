"""What a visit was like, read from the lines the guest reports. Pure; times are given."""

import re
from dataclasses import dataclass, field
from typing import Final

_START: Final = re.compile(r"^@@ start (?P<step>\S+)$")
_END: Final = re.compile(r"^@@ end (?P<step>\S+) (?P<status>\d+)$")
_DONE: Final = re.compile(r"^@@ done (?P<status>\d+)$")
_TABLE_HEAD: Final = re.compile(r"^\s+seconds  step\s+seen$")


@dataclass(slots=True, kw_only=True)
class Step:
    """One thing the visitor did. ``status`` is its exit status, None while it lasts."""

    name: str
    began: float
    seconds: float | None = None
    status: int | None = None


@dataclass(slots=True, kw_only=True)
class Record:
    """The steps so far; ``status`` is the visit's own, None while it lasts.

    ``began`` is when the machine was switched on. All times are seconds of one monotonic clock.
    """

    began: float
    steps: list[Step] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    status: int | None = None

    def take(self, line: str, now: float) -> None:
        """Take the next line of the report."""
        line = line.rstrip()
        if not self.steps:
            self.steps.append(
                Step(name="boot", began=self.began, seconds=now - self.began, status=0)
            )
        if match := _START.match(line):
            self.steps.append(Step(name=match["step"], began=now))
        elif match := _END.match(line):
            for step in self.steps:
                if step.name == match["step"] and step.status is None:
                    step.seconds = now - step.began
                    step.status = int(match["status"])
        elif match := _DONE.match(line):
            self.status = int(match["status"])
        else:
            self.lines.append(line)

    def demo_table(self) -> list[str]:
        """Return the demonstration's own table, empty if it did not get that far."""
        heads = [number for number, line in enumerate(self.lines) if _TABLE_HEAD.match(line)]
        if not heads:
            return []
        rest = self.lines[heads[-1] :]
        return rest[: rest.index("")] if "" in rest else rest

    def table(self) -> list[str]:
        """Return the steps of the visit: outcome, seconds, name."""
        return [f"  {_mark(step):6}  {_seconds(step):>7}  {step.name}" for step in self.steps]


def _mark(step: Step) -> str:
    if step.status is None:
        return "CUT"
    return "ok" if step.status == 0 else "FAILED"


def _seconds(step: Step) -> str:
    return "" if step.seconds is None else f"{step.seconds:.1f}"

"""What the demonstration prints while it runs and when it is done."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO


@dataclass(slots=True, kw_only=True)
class Step:
    """One row of the table; ``found`` is what the step saw."""

    title: str
    found: str = ""
    seconds: float = 0.0
    passed: bool = False


@dataclass(slots=True, kw_only=True)
class Report:
    """Prints each step as it starts and ends, and all of them as a table."""

    out: TextIO = field(default_factory=lambda: sys.stdout)
    clock: Callable[[], float] = time.monotonic
    steps: list[Step] = field(default_factory=list)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Time a step; the caller puts what it found into the step given."""
        step = Step(title=title)
        self.steps.append(step)
        print(f"… {title}", file=self.out, flush=True)
        start = self.clock()
        try:
            yield step
            step.passed = True
        finally:
            step.seconds = self.clock() - start
            mark = "ok" if step.passed else "FAILED"
            line = f"  {mark} after {step.seconds:.1f} s"
            print(f"{line}: {step.found}" if step.found else line, file=self.out, flush=True)

    def table(self) -> str:
        """Return all steps: outcome, seconds, title, what was found."""
        width = max((len(step.title) for step in self.steps), default=0)
        lines = [f"  {'':6}  {'seconds':>7}  {'step':{width}}  seen"]
        for step in self.steps:
            mark = "ok" if step.passed else "FAILED"
            row = f"  {mark:6}  {step.seconds:7.1f}  {step.title:{width}}  {step.found}"
            lines.append(row.rstrip())
        total = sum(step.seconds for step in self.steps)
        lines.append(f"  {'':6}  {total:7.1f}  in all")
        return "\n".join(lines)

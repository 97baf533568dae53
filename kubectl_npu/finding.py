"""What a check says."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line: ``remedy`` says what to do, empty where all is well."""

    check: str
    level: Level
    text: str
    remedy: str = ""


def ok(check: str, text: str, remedy: str = "") -> Finding:
    """Return a finding that is good."""
    return Finding(check=check, level="ok", text=text, remedy=remedy)


def warn(check: str, text: str, remedy: str) -> Finding:
    """Return a finding that may explain a problem and need not be one."""
    return Finding(check=check, level="warn", text=text, remedy=remedy)


def fail(check: str, text: str, remedy: str) -> Finding:
    """Return a finding with which NPU workloads cannot work."""
    return Finding(check=check, level="fail", text=text, remedy=remedy)


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 1 where something failed, else 0."""
    return int(any(finding.level == "fail" for finding in findings))

"""What a check says."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line: ``remedy`` says what to do, empty where all is well."""

    check: str
    level: Level
    text: str
    remedy: str = ""


def ok(check: str, text: str) -> Finding:
    """Return a finding that is good."""
    return Finding(check=check, level="ok", text=text)


def warn(check: str, text: str, remedy: str) -> Finding:
    """Return a finding that may explain a problem and need not be one."""
    return Finding(check=check, level="warn", text=text, remedy=remedy)


def fail(check: str, text: str, remedy: str) -> Finding:
    """Return a finding with which NPU workloads cannot work."""
    return Finding(check=check, level="fail", text=text, remedy=remedy)


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 1 where something failed, else 0."""
    return int(any(finding.level == "fail" for finding in findings))


def as_text(findings: Sequence[Finding]) -> str:
    """Return a line per finding, the remedy below it, and a summary."""
    lines: list[str] = []
    width = max((len(finding.check) for finding in findings), default=0)
    for finding in findings:
        lines.append(f"{finding.level:<4}  {finding.check:<{width}}  {finding.text}")
        if finding.remedy:
            lines.append(f"{'':<{width + 6}}  -> {finding.remedy}")
    counts = {level: sum(f.level == level for f in findings) for level in ("ok", "warn", "fail")}
    lines.append(", ".join(f"{count} {level}" for level, count in counts.items()))
    return "\n".join(lines)


def as_json(findings: Sequence[Finding]) -> str:
    """Return the same as one JSON object."""
    data = {"ok": exit_code(findings) == 0, "findings": [asdict(f) for f in findings]}
    return json.dumps(data, indent=2)

"""What is left out of the images: patterns with reasons, kept as data files.

A line is ``PATTERN  # reason``. ``*`` stays within one folder, ``**`` crosses folders, a pattern
that names a folder covers all below it, a leading ``!`` takes back what earlier lines removed.
The last matching line decides.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from images.tree import Node, Tree, parents


class PruneError(ValueError):
    """A line of a prune list cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of a prune list."""

    pattern: str
    keep: bool
    reason: str
    line: int

    @property
    def regex(self) -> re.Pattern[str]:
        """The pattern as an expression for whole paths."""
        return re.compile(_expression(self.pattern))


def _expression(pattern: str) -> str:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    spelled = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(spelled.get(part) or re.escape(part) for part in parts)


def parse(text: str, *, source: str) -> tuple[Rule, ...]:
    """Read a prune list; ``source`` names it in errors."""
    rules = []
    for number, raw in enumerate(text.splitlines(), start=1):
        if not raw.strip() or raw.startswith("#"):
            continue
        pattern, separator, reason = raw.partition("  # ")
        pattern = pattern.strip()
        if not separator or not reason.strip():
            message = f"{source}:{number}: expected `PATTERN  # reason`, got {raw!r}"
            raise PruneError(message)
        rules.append(
            Rule(
                pattern=pattern.removeprefix("!"),
                keep=pattern.startswith("!"),
                reason=reason.strip(),
                line=number,
            )
        )
    return tuple(rules)


def load(path: Path) -> tuple[Rule, ...]:
    """Read the prune list in the file ``path``."""
    return parse(path.read_text(), source=str(path))


def prune(tree: Mapping[str, Node], rules: Iterable[Rule]) -> tuple[Tree, frozenset[int]]:
    """Return what is left of ``tree`` and the lines of ``rules`` that matched anything."""
    compiled = [(rule, rule.regex) for rule in rules]
    used: set[int] = set()
    kept: Tree = {}
    for path, node in tree.items():
        names = [*parents(path), path]
        verdict = True
        for rule, regex in compiled:
            if any(regex.fullmatch(name) for name in names):
                verdict = rule.keep
                used.add(rule.line)
        if verdict:
            kept[path] = node
    return kept, frozenset(used)

"""Reads the few samples the guard needs out of a Prometheus text page.

The page comes from a node, and a compromised node may write anything. So lines are taken one by
one, only wanted names are looked at, everything is bounded, and what does not parse is counted and
left out: a page can hide its own node's heat but can neither stop the guard nor blow it up.
"""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

LINE_LIMIT = 2048
SAMPLE_LIMIT = 2000

_LINE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>[^\n]*)\})?[ \t]+"
    r"(?P<value>[^ \t]+)(?:[ \t]+-?[0-9.]+)?[ \t]*"
)
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\["\\n])*)"[ \t]*(?:,|$)')
_ESCAPE = re.compile(r'\\(["\\n])')
_NAME_END = re.compile(r"[{ \t]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sample of a page; the value is a finite number."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The wanted samples of a page, and how many wanted lines were left out."""

    samples: tuple[Sample, ...]
    malformed: int


def parse(text: str, wanted: Collection[str]) -> Page:
    """Return the samples of ``text`` whose metric name is ``wanted``; never raises."""
    samples: list[Sample] = []
    malformed = 0
    for line in text.split("\n"):
        if not line or line[0] == "#":
            continue
        if _NAME_END.split(line[:LINE_LIMIT], maxsplit=1)[0] not in wanted:
            continue
        sample = None
        if len(line) <= LINE_LIMIT and len(samples) < SAMPLE_LIMIT:
            sample = _sample(line.rstrip("\r"))
        if sample is None:
            malformed += 1
        else:
            samples.append(sample)
    return Page(samples=tuple(samples), malformed=malformed)


def _sample(line: str) -> Sample | None:
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    labels = _labels(match["labels"] or "")
    try:
        value = float(match["value"])
    except ValueError:
        return None
    if labels is None or not math.isfinite(value):
        return None
    return Sample(name=match["name"], labels=labels, value=value)


def _labels(text: str) -> dict[str, str] | None:
    labels: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None or match[1] in labels:
            return None
        labels[match[1]] = _ESCAPE.sub(_unescaped, match[2])
        position = match.end()
    return labels


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]

"""Reads the Prometheus text format, as far as our exporter writes it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_LINE = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+\d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One series and its value."""

    name: str
    value: float
    labels: dict[str, str] = field(default_factory=dict)


def samples(text: str) -> Iterator[Sample]:
    """Yield the samples of a page; lines that are none are passed over."""
    for line in text.splitlines():
        found = None if line.startswith("#") else _LINE.fullmatch(line.strip())
        if found is None:
            continue
        try:
            value = float(found["value"])
        except ValueError:
            continue
        labels = {
            name: _ESCAPED.sub(lambda m: "\n" if m[1] == "n" else m[1], escaped)
            for name, escaped in _LABEL.findall(found["labels"] or "")
        }
        yield Sample(name=found["name"], value=value, labels=labels)

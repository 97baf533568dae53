"""Recorded temperatures: CSV, or what Prometheus answers to a range query. Plain or gzip.

A CSV trace has the columns ``seconds,node,device,celsius`` and, where they are known, ``busy`` (0
to 1) and ``clock_hz``, under a first line that names them. An empty temperature is a reading that
failed; no row at all is an exporter that did not answer.
"""

import csv
import gzip
import json
import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from npu import ids
from npu.names import METRIC_FREQUENCY, METRIC_TEMPERATURE

_REQUIRED = ("seconds", "node", "device", "celsius")
_OPTIONAL = ("busy", "clock_hz")
_LIMIT_BYTES = 512 << 20
_METRICS = {METRIC_TEMPERATURE: "celsius", METRIC_FREQUENCY: "clock_hz"}


class TraceError(Exception):
    """The trace cannot be read; the message names file, line and fault."""


class Row(NamedTuple):
    """One reading of one device."""

    seconds: float
    node: str
    device: str
    celsius: float | None
    busy_ratio: float | None = None
    clock_hertz: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Rows in order of time; ``interval_seconds`` is the usual distance of two of a device."""

    rows: tuple[Row, ...]
    interval_seconds: float

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes in it."""
        return tuple(sorted({row.node for row in self.rows}))

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.rows[-1].seconds - self.rows[0].seconds


def read(path: Path) -> Trace:
    """Read a trace; raises TraceError."""
    try:
        raw = path.read_bytes()
        if raw.startswith(b"\x1f\x8b"):
            with gzip.open(path) as file:
                raw = file.read(_LIMIT_BYTES + 1)
    except (OSError, EOFError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from error
    if len(raw) > _LIMIT_BYTES:
        raise TraceError(f"{path}: larger than {_LIMIT_BYTES} bytes")
    return parse(raw.decode("utf-8-sig", "replace"), source=str(path))


def parse(text: str, *, source: str = "trace") -> Trace:
    """Read the text of a trace; raises TraceError naming ``source``."""
    rows = _prometheus(text, source) if text.lstrip().startswith("{") else _csv(text, source)
    ordered = tuple(sorted(rows, key=lambda row: row.seconds))
    if not ordered:
        raise TraceError(f"{source}: has no readings")
    return Trace(rows=ordered, interval_seconds=_interval(ordered))


def _csv(text: str, source: str) -> Iterator[Row]:
    reader = csv.reader(text.splitlines())
    names = [name.strip() for name in next(reader, [])]
    missing = [name for name in _REQUIRED if name not in names]
    unknown = [name for name in names if name not in _REQUIRED + _OPTIONAL]
    if missing or unknown:
        wrong = f"lacks {missing[0]}" if missing else f"has the unknown column {unknown[0]!r}"
        raise TraceError(
            f"{source}: line 1 {wrong}; columns are {','.join(_REQUIRED)}[,busy][,clock_hz]"
        )
    for line, values in enumerate(reader, start=2):
        if not values:
            continue
        where = f"{source}: line {line}"
        if len(values) != len(names):
            raise TraceError(f"{where}: {len(values)} values for {len(names)} columns")
        row = dict(zip(names, (value.strip() for value in values), strict=True))
        seconds = _number(row["seconds"], f"{where}: seconds")
        if seconds is None:
            raise TraceError(f"{where}: seconds: is empty")
        if not row["node"]:
            raise TraceError(f"{where}: node: is empty")
        yield Row(
            seconds=seconds,
            node=row["node"],
            device=_device(row["device"], where),
            celsius=_number(row["celsius"], f"{where}: celsius"),
            busy_ratio=_number(row.get("busy", ""), f"{where}: busy"),
            clock_hertz=_number(row.get("clock_hz", ""), f"{where}: clock_hz"),
        )


def _prometheus(text: str, source: str) -> list[Row]:
    """Gather the series of a matrix by node and device; the node is a label ``node``."""
    try:
        data = json.loads(text)
        result = data["data"]["result"]
        series = [(one["metric"], one["values"]) for one in result]
    except (ValueError, KeyError, TypeError) as error:
        raise TraceError(f"{source}: is not the answer to a Prometheus range query") from error
    seen: dict[tuple[float, str, str], dict[str, float]] = {}
    for metric, values in series:
        column = _METRICS.get(metric.get("__name__", METRIC_TEMPERATURE))
        if column is None:
            continue
        node = metric.get("node") or metric.get("instance")
        if not node:
            raise TraceError(f"{source}: a series has neither a label node nor instance: {metric}")
        device = _device(metric.get("device", "npu0"), source)
        for seconds, value in values:
            number = _number(str(value), f"{source}: {metric}")
            if number is not None and math.isfinite(number):
                seen.setdefault((float(seconds), node, device), {})[column] = number
    return [
        Row(
            seconds=seconds,
            node=node,
            device=device,
            celsius=values.get("celsius"),
            clock_hertz=values.get("clock_hz"),
        )
        for (seconds, node, device), values in seen.items()
    ]


def _device(text: str, where: str) -> str:
    try:
        if ids.device_of(text) == text:
            return text
    except ValueError:
        pass
    raise TraceError(f"{where}: device: {text!r} is no device name such as npu0")


def _number(text: str, where: str) -> float | None:
    if not text:
        return None
    try:
        number = float(text)
    except ValueError as error:
        raise TraceError(f"{where}: {text!r} is no number") from error
    return None if math.isnan(number) else number


def _interval(rows: Iterable[Row]) -> float:
    times: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        times.setdefault((row.node, row.device), []).append(row.seconds)
    gaps = [
        later - earlier
        for of_device in times.values()
        for earlier, later in pairwise(of_device)
        if later > earlier
    ]
    return statistics.median(gaps) if gaps else 1.0

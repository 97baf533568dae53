"""Line charts as SVG paths. Pure: points in, text out; words and colours are the page's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from exporter.history import PERIOD_SECONDS, POINTS, Point

#: Size of the drawing in its own units; the page stretches it.
WIDTH: Final = 600
HEIGHT: Final = 100
_SPAN_SECONDS: Final = POINTS * PERIOD_SECONDS
#: A line is not drawn across a longer time without a value.
_GAP_SECONDS: Final = 2.5 * PERIOD_SECONDS
_CELSIUS_STEP: Final = 10
_LOWEST_CELSIUS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart of one value: ``path`` is the line, ``limit_y`` the height of its limit.

    ``low`` and ``high`` are the ends of the scale, ``summary`` says it all in words.
    """

    title: str
    path: str
    low: str
    high: str
    summary: str
    limit_y: float | None = None


def line(values: Sequence[tuple[float, float | None]], now: float, low: float, high: float) -> str:
    """Return the path through (time in seconds, value); ``now`` is the right edge.

    A value that is not known breaks the line: gaps are facts.
    """
    parts: list[str] = []
    before: float | None = None
    for at, value in values:
        if value is None or now - at > _SPAN_SECONDS:
            before = None
            continue
        x = WIDTH * (1 - (now - at) / _SPAN_SECONDS)
        joined = before is not None and at - before <= _GAP_SECONDS
        # A lone point becomes a dot: a line of no length with round ends.
        parts.append(
            f"L{x:.1f} {_y(value, low, high):.1f}"
            if joined
            else f"M{x:.1f} {_y(value, low, high):.1f}h0"
        )
        before = at
    return "".join(parts)


def load_chart(points: Sequence[Point]) -> Chart | None:
    """Return the chart of the load, None where none was seen."""
    values = [(point.at, point.load) for point in points]
    words = _words([value for _, value in values if value is not None], "%", 100)
    if words is None:
        return None
    return Chart(
        title="Load of all cores",
        path=line(values, points[-1].at, 0, 1),
        low="0 %",
        high="100 %",
        summary=f"Load of all cores in the last {_minutes(points)}: {words}",
    )


def temperature_chart(points: Sequence[Point], limit: float | None) -> Chart | None:
    """Return the chart of the temperature with its ``limit`` in °C, None where none was seen."""
    known = [point.celsius for point in points if point.celsius is not None]
    words = _words(known, "°C", 1)
    if words is None:
        return None
    ends = [*known, *(() if limit is None else (limit,))]
    low = min(_LOWEST_CELSIUS, min(ends) // _CELSIUS_STEP * _CELSIUS_STEP)
    high = -(-max(ends) // _CELSIUS_STEP) * _CELSIUS_STEP
    return Chart(
        title="Temperature",
        path=line([(point.at, point.celsius) for point in points], points[-1].at, low, high),
        low=f"{low:.0f} °C",
        high=f"{high:.0f} °C",
        summary=f"Temperature in the last {_minutes(points)}: {words}"
        + ("" if limit is None else f"; limit {limit:.0f} °C"),
        limit_y=None if limit is None else round(_y(limit, low, high), 1),
    )


def _y(value: float, low: float, high: float) -> float:
    return HEIGHT * (1 - (value - low) / (high - low))


def _words(values: Sequence[float], unit: str, factor: float) -> str | None:
    if not values:
        return None
    low, high, now = (round(value * factor) for value in (min(values), max(values), values[-1]))
    return f"{low} to {high} {unit}, last {now} {unit}"


def _minutes(points: Sequence[Point]) -> str:
    minutes = max(1, round((points[-1].at - points[0].at) / 60))
    return "minute" if minutes == 1 else f"{minutes} minutes"

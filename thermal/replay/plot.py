"""Draws a replay: temperatures of each node, and below them when each setting closed it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape

from thermal.replay.run import Replayed, Span
from thermal.replay.trace import Row, Trace

_WIDTH, _LEFT, _EDGE = 1000, 110, 980
_FONT = 'font-family="sans-serif" font-size="11"'
_PANEL, _BAND, _GAP, _TOP = 150, 12, 26, 40
_POINTS = 700
_NODES = 24
_LINES = {"hot": "#d97706", "critical": "#b91c1c"}
_BANDS = {"NoSchedule": "#b91c1c", "PreferNoSchedule": "#fbbf24"}
_TICKS = 6
_BELIEVED = 130.0


def svg(trace: Trace, settings: Mapping[str, Replayed]) -> str:
    """Return the picture; of more than 24 nodes, the hottest."""
    by_node: dict[str, list[Row]] = {}
    for row in trace.rows:
        if row.celsius is not None:
            by_node.setdefault(row.node, []).append(row)
    hottest = sorted(by_node, key=lambda node: -max(row.celsius or 0.0 for row in by_node[node]))
    shown = sorted(hottest[:_NODES])
    panel = _PANEL + _BAND * len(settings) + _GAP
    height = _TOP + panel * len(shown) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" {_FONT}>',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        *_legend(),
    ]
    for index, node in enumerate(shown):
        parts += _node(trace, node, by_node[node], settings, _TOP + index * panel)
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _legend() -> list[str]:
    items = [
        ("#1d4ed8", "temperature"),
        (_LINES["hot"], "hot"),
        (_LINES["critical"], "critical"),
        (_BANDS["NoSchedule"], "closed (band)"),
        (_BANDS["PreferNoSchedule"], "avoided (band)"),
    ]
    return [
        part
        for index, (colour, text) in enumerate(items)
        for part in (
            f'<rect x="{_LEFT + 150 * index}" y="12" width="12" height="8" fill="{colour}"/>',
            f'<text x="{_LEFT + 150 * index + 17}" y="20">{text}</text>',
        )
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Panel:
    """Where a node is drawn, and which times and temperatures its edges are."""

    top: int
    begin: float
    seconds: float
    low: float
    high: float

    def x(self, at: float) -> float:
        return round(_LEFT + (at - self.begin) / self.seconds * (_EDGE - _LEFT), 1)

    def y(self, celsius: float) -> float:
        clipped = min(max(celsius, self.low), self.high)
        share = (clipped - self.low) / (self.high - self.low)
        return round(self.top + _PANEL - share * _PANEL, 1)

    def band(self, index: int) -> int:
        return self.top + _PANEL + 4 + index * _BAND


def _node(
    trace: Trace, node: str, rows: list[Row], settings: Mapping[str, Replayed], top: int
) -> list[str]:
    limits = [one.limits[node] for one in settings.values() if node in one.limits]
    # Placeholders of broken sensors must not squeeze the curve.
    values = [row.celsius for row in rows if row.celsius is not None and row.celsius <= _BELIEVED]
    panel = _Panel(
        top=top,
        begin=trace.rows[0].seconds,
        seconds=max(trace.seconds, 1.0),
        low=max(-20.0, min([*values, 50.0]) - 2),
        high=max([*values, *(limit.critical_celsius for limit in limits)]) + 2,
    )
    return [
        f'<text x="4" y="{top + 12}" font-weight="bold">{escape(node)}</text>',
        *_grid(panel),
        *(
            _line(panel.y(limit.named()[name]), colour, "" if index == 0 else "6 4")
            for index, limit in enumerate(limits)
            for name, colour in _LINES.items()
        ),
        *(
            _curve(panel, [row for row in rows if row.device == device])
            for device in sorted({row.device for row in rows})
        ),
        *(
            part
            for index, (name, replayed) in enumerate(settings.items())
            for part in _bands(panel, index, name, [s for s in replayed.spans if s.node == node])
        ),
        *_times(panel, panel.band(len(settings)) + 9),
    ]


def _grid(panel: _Panel) -> Iterator[str]:
    for celsius in range(int(panel.low // 10 + 1) * 10, int(panel.high) + 1, 10):
        at = panel.y(celsius)
        yield _line(at, "#e2e8f0")
        yield f'<text x="{_LEFT - 6}" y="{at + 4}" text-anchor="end">{celsius}</text>'


def _curve(panel: _Panel, rows: list[Row]) -> str:
    points = " ".join(f"{panel.x(at)},{panel.y(value)}" for at, value in _thinned(rows, panel))
    return f'<polyline points="{points}" fill="none" stroke="#1d4ed8"/>'


def _bands(panel: _Panel, index: int, name: str, spans: list[Span]) -> Iterator[str]:
    top = panel.band(index)
    yield f'<text x="{_LEFT - 6}" y="{top + 8}" text-anchor="end">{escape(name[:14])}</text>'
    for span in spans:
        left = panel.x(span.begin)
        width = max(1.0, round(panel.x(span.end) - left, 1))
        colour = _BANDS.get(span.effect, "#64748b")
        size = f'width="{width}" height="{_BAND - 3}"'
        yield f'<rect x="{left}" y="{top}" {size} fill="{colour}"/>'


def _times(panel: _Panel, at: int) -> Iterator[str]:
    for tick in range(_TICKS + 1):
        passed = panel.seconds * tick / _TICKS
        x = panel.x(panel.begin + passed)
        yield f'<text x="{x}" y="{at}" text-anchor="middle">{passed / 3600:.2f} h</text>'


def _line(at: float, colour: str, dashes: str = "") -> str:
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<line x1="{_LEFT}" y1="{at}" x2="{_EDGE}" y2="{at}" stroke="{colour}"{dash}/>'


def _thinned(rows: list[Row], panel: _Panel) -> list[tuple[float, float]]:
    """Return lowest and highest reading of each of some hundred slices of time."""
    slices: dict[int, list[tuple[float, float]]] = {}
    for row in rows:
        if row.celsius is not None:
            index = int((row.seconds - panel.begin) / panel.seconds * _POINTS)
            slices.setdefault(index, []).append((row.seconds, row.celsius))
    points: list[tuple[float, float]] = []
    for _, readings in sorted(slices.items()):
        points += sorted({min(readings, key=_celsius), max(readings, key=_celsius)})
    return points


def _celsius(reading: tuple[float, float]) -> float:
    return reading[1]

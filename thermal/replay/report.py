"""Sums a replay up: how often, how long, how much."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

from thermal.replay.run import Replayed, Span
from thermal.replay.trace import Row, Trace

_LIMITS = ("warm", "hot", "critical", "emergency")
_HOUR = 3600.0
_IDLE_BELOW = 0.05

Report = dict[str, object]


def report(trace: Trace, replayed: Replayed) -> Report:
    """Return the numbers of one replay; times in seconds, sums over all nodes.

    ``flips`` are closings and openings together. ``throughputLost`` holds shares of the recorded
    busy time, None where the record does not tell it. ``closed`` is work that began on a closed
    node, an upper bound, because other nodes may have taken it. ``throttled`` is what a clock below
    its highest cost in the record.
    """
    hours = max(trace.seconds, 1.0) / _HOUR
    closed = [span for span in replayed.spans if span.effect == "NoSchedule"]
    kinds = Counter(
        (change.source.value, change.target.value, change.reason.value)
        for change in replayed.changes
    )
    flips = sum(1 + (span.end < trace.rows[-1].seconds) for span in closed)
    return {
        "nodes": len(trace.nodes),
        "hours": round(trace.seconds / _HOUR, 3),
        "transitions": [
            {"from": source, "to": target, "reason": reason, "count": count}
            for (source, target, reason), count in sorted(kinds.items())
        ],
        "flips": flips,
        "flipsPerNodeHour": round(flips / hours / len(trace.nodes), 3),
        "closedSeconds": round(_total(closed), 1),
        "avoidedSeconds": round(_total(replayed.spans) - _total(closed), 1),
        "secondsAbove": {name: round(seconds, 1) for name, seconds in above(trace, replayed)},
        "evictions": len(replayed.evictions),
        "heldBackSeconds": {
            reason: round(seconds, 1)
            for reason, seconds in sorted(replayed.held_back_seconds.items())
        },
        "throughputLost": lost(trace, closed),
    }


def above(trace: Trace, replayed: Replayed) -> list[tuple[str, float]]:
    """Return for how long recorded temperatures were at or above each limit of their node.

    A reading counts until the next one of the device, for three usual intervals at most.
    """
    totals = dict.fromkeys(_LIMITS, 0.0)
    for row, seconds in _held(trace):
        limits = replayed.limits.get(row.node)
        if limits is None or row.celsius is None:
            continue
        for name, limit in limits.named().items():
            if name in totals and row.celsius >= limit:
                totals[name] += seconds
    return list(totals.items())


def lost(trace: Trace, closed: list[Span]) -> dict[str, float | None]:
    """Estimate work that was not done, as shares of the recorded busy time.

    What ran when the node was closed goes on; from the first idle reading after that, nothing new
    would have started.
    """
    by_node: dict[str, list[Span]] = {}
    for span in closed:
        by_node.setdefault(span.node, []).append(span)
    highest = _highest_clocks(trace)
    total = kept_away = throttled = 0.0
    emptied: dict[tuple[str, str], Span] = {}
    for row, seconds in _held(trace):
        if row.busy_ratio is None:
            continue
        key, busy = (row.node, row.device), row.busy_ratio * seconds
        total += busy
        now_closed = _span_at(by_node.get(row.node, []), row.seconds)
        if now_closed is not None:
            if row.busy_ratio < _IDLE_BELOW:
                emptied[key] = now_closed
            if emptied.get(key) is now_closed:
                kept_away += busy
        if row.clock_hertz is not None and highest[key] > 0:
            throttled += busy * (1.0 - row.clock_hertz / highest[key])
    if total <= 0:
        return {"closed": None, "throttled": None}
    return {
        "closed": round(kept_away / total, 4),
        "throttled": round(throttled / total, 4) if highest else None,
    }


def as_text(reports: Mapping[str, Report]) -> str:
    """Return reports as a table, one column each."""
    lines: list[tuple[str, list[str]]] = []
    columns = list(reports.values())

    def line(title: str, values: list[object], unit: str = "") -> None:
        shown = ["-" if value is None else f"{value}{unit}" for value in values]
        lines.append((title, shown))

    line("nodes", [one["nodes"] for one in columns])
    line("hours", [one["hours"] for one in columns])
    line("flips (closed or opened)", [one["flips"] for one in columns])
    line("flips per node and hour", [one["flipsPerNodeHour"] for one in columns])
    line("closed", [one["closedSeconds"] for one in columns], " s")
    line("avoided only", [one["avoidedSeconds"] for one in columns], " s")
    line("evictions", [one["evictions"] for one in columns])
    for key, title in (("secondsAbove", "above {}"), ("heldBackSeconds", "held back: {}")):
        for name in _names(columns, key):
            line(title.format(name), [_part(one, key).get(name, 0.0) for one in columns], " s")
    for name, title in (
        ("closed", "work kept away, at most"),
        ("throttled", "work lost to a lower clock"),
    ):
        shares = [_part(one, "throughputLost").get(name) for one in columns]
        line(
            title,
            [f"{100 * s:.1f} %" if isinstance(s, float) else None for s in shares],
        )
    counts = [_counts(one) for one in columns]
    for moved in sorted(set().union(*counts)):
        line(moved, [one.get(moved, 0) for one in counts])
    titles = list(reports)
    left = max(len(title) for title, _ in lines)
    widths = [
        max(len(title), *(len(values[index]) for _, values in lines))
        for index, title in enumerate(titles)
    ]
    table = [("", titles), *lines]
    return "\n".join(
        "  ".join(
            [name.ljust(left), *(v.rjust(w) for v, w in zip(values, widths, strict=True))]
        ).rstrip()
        for name, values in table
    )


def _held(trace: Trace) -> list[tuple[Row, float]]:
    """Return every reading with the time it stands for."""
    longest = 3.0 * trace.interval_seconds
    of_device: dict[tuple[str, str], list[Row]] = {}
    for row in trace.rows:
        of_device.setdefault((row.node, row.device), []).append(row)
    return [
        (earlier, min(longest, later.seconds - earlier.seconds))
        for rows in of_device.values()
        for earlier, later in pairwise(rows)
    ]


def _highest_clocks(trace: Trace) -> dict[tuple[str, str], float]:
    highest: dict[tuple[str, str], float] = {}
    for row in trace.rows:
        if row.clock_hertz is not None:
            key = (row.node, row.device)
            highest[key] = max(row.clock_hertz, highest.get(key, 0.0))
    return highest


def _span_at(spans: list[Span], seconds: float) -> Span | None:
    return next((span for span in spans if span.begin <= seconds < span.end), None)


def _total(spans: list[Span]) -> float:
    return sum(span.end - span.begin for span in spans)


def _part(one: Report, key: str) -> dict[str, object]:
    part = one[key]
    return part if isinstance(part, dict) else {}


def _names(columns: list[Report], key: str) -> list[str]:
    return list(dict.fromkeys(name for one in columns for name in _part(one, key)))


def _counts(one: Report) -> dict[str, int]:
    found = one["transitions"]
    rows = found if isinstance(found, list) else []
    return {f"{r['from']} -> {r['to']} ({r['reason']})": r["count"] for r in rows}

"""What was measured, what is asked of it, and both as a table and as data. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["met", "missed", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A limit for our figure: absolute, and as a multiple of the peer's. Both must hold."""

    limit: float | None = None
    ratio: float | None = None

    def holds(self, ours: float, peer: float | None) -> bool:
        """Tell whether ``ours`` is within."""
        within = self.limit is None or ours <= self.limit
        return within and (self.ratio is None or peer is None or ours <= self.ratio * peer)

    def __str__(self) -> str:
        """Return the gate for people."""
        parts = [] if self.limit is None else [f"<= {self.limit:g}"]
        if self.ratio is not None:
            parts.append(f"<= {self.ratio:g} x peer")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line: ours, and the peer's where it has one."""

    name: str
    unit: str
    ours: float
    peer: float | None = None
    gate: Gate | None = None

    @property
    def verdict(self) -> Verdict:
        """Whether the gate is met; empty where there is none."""
        if self.gate is None:
            return ""
        return "met" if self.gate.holds(self.ours, self.peer) else "missed"

    def as_data(self) -> dict[str, object]:
        """Return the line for programs."""
        return {
            "name": self.name,
            "unit": self.unit,
            "ours": self.ours,
            "peer": self.peer,
            "gate": None if self.gate is None else str(self.gate),
            "verdict": self.verdict or None,
        }


@dataclass(slots=True)
class Samples:
    """Everything measured of one plugin. Times are nanoseconds, memory bytes."""

    allocate: list[int] = field(default_factory=list)
    start_to_registered: list[int] = field(default_factory=list)
    start_to_list: list[int] = field(default_factory=list)
    socket_to_list: list[int] = field(default_factory=list)
    resident: int = 0
    idle_ratio: float = 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that ``share`` (0 to 1) of all are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


#: Milliseconds, MiB and percent of a core.
GATES: Mapping[str, Gate] = {
    "Allocate p99": Gate(limit=2.0, ratio=3.0),
    "kubelet.sock to list, worst": Gate(limit=2000.0),
    "resident memory": Gate(limit=45.0),
    "idle CPU": Gate(limit=0.3),
    "Pod start, median": Gate(ratio=1.02),
}


def figures(ours: Samples, peer: Samples) -> tuple[Figure, ...]:
    """Return the lines of the table."""

    def line(name: str, unit: str, values: tuple[float, float]) -> Figure:
        return Figure(name=name, unit=unit, ours=values[0], peer=values[1], gate=GATES.get(name))

    def milliseconds(name: str, take: str, share: float) -> Figure:
        first, second = (percentile(getattr(one, take), share) / 1e6 for one in (ours, peer))
        return line(name, "ms", (first, second))

    def medians(name: str, take: str) -> Figure:
        first, second = (statistics.median(getattr(one, take)) / 1e6 for one in (ours, peer))
        return line(name, "ms", (first, second))

    return (
        milliseconds("Allocate p50", "allocate", 0.5),
        milliseconds("Allocate p99", "allocate", 0.99),
        milliseconds("Allocate p99.9", "allocate", 0.999),
        medians("start to registered, median", "start_to_registered"),
        medians("start to list, median", "start_to_list"),
        medians("kubelet.sock to list, median", "socket_to_list"),
        milliseconds("kubelet.sock to list, worst", "socket_to_list", 1.0),
        line("resident memory", "MiB", (ours.resident / 2**20, peer.resident / 2**20)),
        line("idle CPU", "% of a core", (ours.idle_ratio * 100, peer.idle_ratio * 100)),
    )


def pod_figures(
    ours: Sequence[float], peer: Sequence[float], without: Sequence[float]
) -> tuple[Figure, ...]:
    """Return the lines about starts of Pods, in seconds: with our device, the peer's, and none.

    Values at the same position were taken one after the other, so that their difference says more
    than that of the medians where the machine is busy.
    """

    def line(name: str, unit: str, values: tuple[float, float]) -> Figure:
        return Figure(name=name, unit=unit, ours=values[0], peer=values[1], gate=GATES.get(name))

    def middle(values: Sequence[float]) -> float:
        return statistics.median(values) * 1e3

    def added(values: Sequence[float]) -> float:
        pairs = zip(values, without, strict=True)
        return statistics.median(value - bare for value, bare in pairs) * 1e3

    return (
        line("Pod start, median", "ms", (middle(ours), middle(peer))),
        line("Pod start, p90", "ms", (percentile(ours, 0.9) * 1e3, percentile(peer, 0.9) * 1e3)),
        Figure(name="Pod start without device, median", unit="ms", ours=middle(without)),
        line("added by the device, median of pairs", "ms", (added(ours), added(peer))),
    )


def table(lines: Sequence[Figure], names: tuple[str, str]) -> str:
    """Return the table for people."""
    rows = [("", *names, "ratio", "unit", "gate", "")]
    for one in lines:
        ratio = "" if not one.peer else f"{one.ours / one.peer:.2f}"
        peer = "" if one.peer is None else f"{one.peer:.3f}"
        rows.append(
            (one.name, f"{one.ours:.3f}", peer, ratio, one.unit, str(one.gate or ""), one.verdict)
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if 0 < column < 4 else cell.ljust(width)  # noqa: PLR2004 - numbers
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )

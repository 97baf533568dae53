"""Runs the guard's own machines, policy, budget and storm brake over a trace. Pure.

It is the code that runs in a cluster, with an API server that always answers. A trace cannot tell
how it would have gone on had the guard acted: a closed node stays as hot as it was recorded. Rates
of opening and closing are therefore upper bounds, and times above limits are those of the record.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from npu.heat import Heat, Reason
from npu.thresholds import Thresholds
from thermal import taints
from thermal.actions import Evict
from thermal.config import Config
from thermal.desired import desired_of
from thermal.fleet import Fleet, NodeStatus
from thermal.objects import NodeRecord, PodRecord
from thermal.readings import DeviceSample, NodeSample
from thermal.replay.trace import Row, Trace
from thermal.restraint import FleetRestraint
from thermal.source import Failure, Result

#: Stands for the rest of the cluster, so that a recorded node is not the only one.
_ELSEWHERE = "(elsewhere)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a device's state."""

    seconds: float
    node: str
    device: str
    source: Heat
    target: Heat
    reason: Reason
    celsius: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A time during which a node was closed (NoSchedule) or avoided (PreferNoSchedule)."""

    node: str
    effect: str
    begin: float
    end: float


@dataclass(slots=True, kw_only=True)
class Replayed:
    """What happened. ``limits`` are the thresholds of each node, as at the end."""

    changes: list[Change] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    evictions: list[tuple[float, str]] = field(default_factory=list)
    held_back_seconds: dict[str, float] = field(default_factory=dict)
    limits: dict[str, Thresholds] = field(default_factory=dict)


def replay(trace: Trace, config: Config) -> Replayed:
    """Return what the guard would have done with this configuration."""
    return _Replay(trace, config).run()


class _Replay:
    def __init__(self, trace: Trace, config: Config) -> None:
        interval = max(config.scrape.interval_seconds, trace.interval_seconds)
        scrape = msgspec.structs.replace(
            config.scrape,
            interval_seconds=interval,
            warm_interval_seconds=min(
                interval, max(config.scrape.warm_interval_seconds, trace.interval_seconds)
            ),
        )
        self._config = msgspec.structs.replace(config, scrape=scrape)
        self._trace = trace
        self._now = trace.rows[0].seconds
        resource = next(iter(config.resources), "npu")
        self._nodes = {
            name: NodeRecord(name=name, ready=True, allocatable={resource: 1})
            for name in trace.nodes
        }
        self._pods = {
            name: PodRecord(name=name, uid=name, node=name, address=name, running=True)
            for name in trace.nodes
        }
        self._fleet = Fleet(
            self._config.settings,
            self._config.policy,
            interval_seconds=scrape.interval_seconds,
            warm_interval_seconds=scrape.warm_interval_seconds,
            wall=lambda: "",
        )
        self._restraint = FleetRestraint(
            budget=config.budget,
            storm=config.storm,
            resources=config.resources,
            closes=config.effect == "NoSchedule",
            nodes=lambda: {**self._nodes, _ELSEWHERE: NodeRecord(name=_ELSEWHERE)},
            monotonic=lambda: self._now,
        )
        self._samples: dict[str, dict[str, tuple[float, DeviceSample]]] = {}
        self._open_spans: dict[str, tuple[str, float]] = {}
        self._evicting: set[str] = set()
        self._result = Replayed()

    def run(self) -> Replayed:
        before = self._now
        for now, rows in self._turns():
            self._now = now
            for row in rows:
                self._take(row)
            targets, results = self._fleet.due(self._nodes, self._pods, now)
            read = {target.node: self._page(target.node, now) for target in targets}
            for change in self._fleet.observe({**results, **read}, now):
                moved = change.transition
                self._result.changes.append(
                    Change(
                        seconds=now,
                        node=change.node,
                        device=change.device,
                        source=moved.source,
                        target=moved.target,
                        reason=moved.reason,
                        celsius=moved.celsius,
                    )
                )
            self._act(self._fleet.judge(self._nodes, self._pods, now), now - before)
            before = now
        for node, (effect, begin) in self._open_spans.items():
            span = Span(node=node, effect=effect, begin=begin, end=self._now)
            self._result.spans.append(span)
        self._result.spans.sort(key=lambda span: (span.begin, span.node))
        return self._result

    def _turns(self) -> Iterator[tuple[float, list[Row]]]:
        """Yield moments with their rows, and moments without any where the record has a gap."""
        step = self._config.scrape.interval_seconds
        rows: list[Row] = []
        at = self._now
        for row in self._trace.rows:
            if row.seconds > at:
                yield at, rows
                while row.seconds - at > 1.5 * step:
                    at += step
                    yield at, []
                rows, at = [], row.seconds
            rows.append(row)
        yield at, rows

    def _take(self, row: Row) -> None:
        devices = self._samples.setdefault(row.node, {})
        seen = devices.get(row.device)
        busy, covered = {}, {}
        if row.busy_ratio is not None:
            passed = 0.0 if seen is None else row.seconds - seen[0]
            before = ({}, {}) if seen is None else (seen[1].busy_seconds, seen[1].sampled_seconds)
            busy = {"all": before[0].get("all", 0.0) + passed * row.busy_ratio}
            covered = {"all": before[1].get("all", 0.0) + passed}
        sample = DeviceSample(
            device=row.device,
            vendor="rockchip",
            model="",
            celsius=row.celsius,
            clock_hertz=row.clock_hertz,
            busy_seconds=busy,
            sampled_seconds=covered,
        )
        devices[row.device] = (row.seconds, sample)

    def _page(self, node: str, now: float) -> Result:
        fresh = 1.5 * max(self._trace.interval_seconds, 1.0)
        devices = [
            sample
            for seconds, sample in self._samples.get(node, {}).values()
            if now - seconds < fresh
        ]
        return NodeSample(devices=tuple(devices)) if devices else Failure(reason="timeout")

    def _act(self, statuses: Mapping[str, NodeStatus], passed: float) -> None:
        decisions = [status.decision for status in statuses.values() if status.decision]
        for decision in self._restraint(decisions):
            node, status = self._nodes[decision.node], statuses[decision.node]
            desired = desired_of(
                decision, node, effect=self._config.effect, since="", devices=status.devices
            )
            merged = taints.merged(node.taints, desired.hot, critical=desired.critical)
            if merged is not None:
                node = replace(node, taints=tuple(merged))
                self._nodes[decision.node] = node
            self._span(node.name, taints.applied_effect(node.taints))
            self._result.limits[node.name] = status.limits
            for reason in decision.held_back:
                self._result.held_back_seconds[reason] = (
                    self._result.held_back_seconds.get(reason, 0.0) + passed
                )
            if any(isinstance(action, Evict) for action in decision.actions):
                if node.name not in self._evicting:
                    self._result.evictions.append((self._now, node.name))
                self._evicting.add(node.name)
            else:
                self._evicting.discard(node.name)

    def _span(self, node: str, effect: str | None) -> None:
        current = self._open_spans.get(node)
        if effect == (current[0] if current else None):
            return
        if current is not None:
            self._result.spans.append(
                Span(node=node, effect=current[0], begin=current[1], end=self._now)
            )
            del self._open_spans[node]
        if effect is not None:
            self._open_spans[node] = (effect, self._now)

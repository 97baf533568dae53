"""The ruling loop: compares DeviceTaintRules with the last judgement and writes what differs.

The counterpart of the acting loop for nodes that serve claims, level-triggered and paced like it.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from daemon.logs import fields
from npu.heat import severity
from thermal.config import Config
from thermal.dra.objects import Objects, Write
from thermal.dra.rules import (
    RuleRecord,
    new_rule,
    rule_patch,
    rules_of,
    state_of,
)
from thermal.dra.slices import SliceRecord
from thermal.events import Announcement, about_node
from thermal.fleet import NodeStatus
from thermal.judging import Judgement, Leadership
from thermal.manual import URGENT, held
from thermal.objects import NodeRecord
from thermal.observing import only_observes
from thermal.pacing import Pacer
from thermal.policy import Decision
from thermal.writer import NodeActuator

log = logging.getLogger(__name__)

#: For how long a node is left alone after a write: one that was made is not yet seen.
_SKIP_SECONDS: Final = {"written": 2.0, "behind": 1.0, "refused": 30.0}
#: How long a rule that was written may be missing from the cache before it counts as removed.
_SEEN_SECONDS = 10.0


class View(Protocol):
    """What is known of the cluster, from memory."""

    def nodes(self) -> dict[str, NodeRecord]:
        """Return all Nodes by name."""
        ...

    def counted(self) -> frozenset[str]:
        """Return the nodes that do not hand devices out by claims any more."""
        ...

    def tainted(self) -> frozenset[str]:
        """Return the Nodes with a taint of ours, whatever their devices have."""
        ...

    def slices(self) -> dict[str, SliceRecord]:
        """Return our ResourceSlices by name."""
        ...

    def rules(self) -> dict[str, RuleRecord]:
        """Return our DeviceTaintRules by name."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Write(Write):
    """A rule to be written; the higher ``rank``, the sooner. Releases come last."""

    rank: tuple[int, float] = (-1, 0.0)


@dataclass(slots=True)
class _Memory:
    """What is remembered within one term of leadership."""

    pacer: Pacer = field(default_factory=Pacer)
    skip_until: dict[str, float] = field(default_factory=dict)
    written_at: dict[str, float] = field(default_factory=dict)
    paused_until: dict[str, float] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)


class Ruler:
    """Writes rules while this replica leads; :meth:`step` is one turn of its loop."""

    def __init__(
        self,
        config: Config,
        objects: Objects,
        *,
        view: View,
        judgement: Callable[[], Judgement | None],
        leadership: Leadership,
        actuator: NodeActuator,
        release: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._view = view
        self._judgement = judgement
        self._leadership = leadership
        self._actuator = actuator
        self._release = release
        self._monotonic = monotonic
        self._memory = _Memory()
        self._term: int | None = None
        self._objects = objects

    @property
    def writes(self) -> Mapping[str, int]:
        """What was written, by operation."""
        return self._objects.writes

    def step(self) -> None:
        """Write as many rules as the pace allows."""
        judgement, now = self._judgement(), self._monotonic()
        if judgement is None or judgement.term != self._leadership.term:
            return
        if judgement.term != self._term:
            self._term, self._memory = judgement.term, _Memory()
            self._objects.forget()
        rules = self._view.rules()
        self._tell(rules)
        if not self._objects.ready(now):
            return
        found = self._differences(judgement, rules, now)
        for write in sorted(found, key=lambda item: item.rank, reverse=True):
            if self._leadership.term != self._term or not self._memory.pacer.take(now):
                return
            if not self._apply(write, now):
                return

    def _differences(
        self, judgement: Judgement, rules: Mapping[str, RuleRecord], now: float
    ) -> Iterator[_Write]:
        nodes, counted, tainted = self._view.nodes(), self._view.counted(), self._view.tainted()
        slices: dict[str, list[SliceRecord]] = {}
        for item in self._view.slices().values():
            slices.setdefault(item.node, []).append(item)
        present: dict[str, list[RuleRecord]] = {}
        for record in rules.values():
            present.setdefault(record.rule.node, []).append(record)
        for name in sorted(slices.keys() | present.keys()):
            status, node = judgement.statuses.get(name), nodes.get(name)
            mine = present.get(name, [])
            if node is None:
                yield from (_deletion(record) for record in mine)
            elif name in counted:
                if name not in slices and now >= self._memory.skip_until.get(name, now):
                    yield from _of_moved(node, status, mine, tainted=name in tainted)
            elif status is not None and now >= self._memory.skip_until.get(name, now):
                yield from self._of_node(node, status, slices.get(name, []), mine, now)

    def _of_node(
        self,
        node: NodeRecord,
        status: NodeStatus,
        slices: list[SliceRecord],
        present: list[RuleRecord],
        now: float,
    ) -> Iterator[_Write]:
        decision = status.decision
        if decision is None:
            return
        released = _releases(node, decision)
        # A kubelet that restarted has wiped the slices; the rules hold when they come back.
        if not released and not slices:
            return
        expelling = any(record.rule.effect == "NoExecute" for record in present)
        wanted = (
            ()
            if released
            else rules_of(
                decision,
                slices,
                enforce=self._config.taint == "NoSchedule"
                and not only_observes(self._config, node, status),
                expelling=expelling,
            )
        )
        by_name = {record.rule.name: record for record in present}
        urgent, rank = decision.state in URGENT, _rank(decision)
        if not urgent and held(node):
            return
        for rule in wanted:
            state = state_of(status, decision, rule)
            known = by_name.pop(rule.name, None)
            if known is not None:
                body = rule_patch(known, rule, state)
                if body is not None:
                    yield _Write(
                        operation="update", name=rule.name, body=body, node=node.name, rank=rank
                    )
            elif urgent or not self._paused(rule.name, node.name, now):
                body = new_rule(rule, state, release=self._release)
                yield _Write(
                    operation="create", name=rule.name, body=body, node=node.name, rank=rank
                )
        yield from (_deletion(record) for record in by_name.values())

    def _paused(self, name: str, node: str, now: float) -> bool:
        """Tell whether a person took the rule away, which is respected for a while."""
        memory = self._memory
        written = memory.written_at.get(name)
        if written is not None and now - written < _SEEN_SECONDS:
            return True
        if written is not None and self._config.manual_pause_seconds:
            del memory.written_at[name]
            memory.paused_until[name] = now + self._config.manual_pause_seconds
            log.warning(
                "rule was removed by somebody else; not made again for a while",
                extra=fields(node=node, rule=name),
            )
        return now < memory.paused_until.get(name, now)

    def _apply(self, write: _Write, now: float) -> bool:
        """Write; False where nothing else should be tried now."""
        memory = self._memory
        outcome = self._objects.apply(write, now)
        if outcome == "away":
            return False
        memory.skip_until[write.node] = now + _SKIP_SECONDS[outcome]
        if outcome != "written":
            return True
        if write.operation == "delete":
            memory.written_at.pop(write.name, None)
            memory.paused_until.pop(write.name, None)
        else:
            memory.written_at[write.name] = now
        effect = write.body.get("spec", {}).get("taint", {}).get("effect")
        self._actuator.journal.note(
            "written", write.node, f"device taint rule: {write.operation} {effect or ''}".strip()
        )
        return True

    def _tell(self, rules: Mapping[str, RuleRecord]) -> None:
        """Announce what an observed rule would do, once per rule."""
        memory = self._memory
        nodes = self._view.nodes()
        for name in memory.told.keys() - rules.keys():
            del memory.told[name]
        for name, record in rules.items():
            node = nodes.get(record.rule.node)
            observed = record.rule.effect == "None" and record.verdict
            if not observed or node is None or memory.told.get(name) == record.verdict:
                continue
            memory.told[name] = record.verdict
            self._actuator.announce(
                Announcement(
                    kind="Normal", reason="NPUObserved", action="Observe", note=record.verdict
                ),
                about_node(node),
            )


def _of_moved(
    node: NodeRecord, status: NodeStatus | None, present: list[RuleRecord], *, tainted: bool
) -> Iterator[_Write]:
    """Yield the end of rules whose place the taint of the Node has, which another loop writes.

    Until it is there they are all that the next leader would know of the heat.
    """
    decision = None if status is None else status.decision
    released = decision is not None and _releases(node, decision)
    for record in present:
        if tainted or released or record.rule.effect == "None":
            yield _deletion(record)


def _releases(node: NodeRecord, decision: Decision) -> bool:
    return node.override == "disabled" or decision.stop is None or decision.forget


def _rank(decision: Decision) -> tuple[int, float]:
    known = [device.celsius for device in decision.devices if device.celsius is not None]
    return severity(decision.state), max(known, default=0.0)


def _deletion(record: RuleRecord) -> _Write:
    return _Write(operation="delete", name=record.rule.name, body={}, node=record.rule.node)

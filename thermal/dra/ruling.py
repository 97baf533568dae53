"""The ruling loop: compares DeviceTaintRules with the last judgement and writes what differs.

The counterpart of the acting loop for nodes that serve claims, level-triggered and paced like it.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from daemon.backoff import Backoff
from daemon.logs import fields
from npu.heat import Heat, severity
from thermal import wallclock
from thermal.api import Api
from thermal.config import Config
from thermal.dra.rules import (
    RULES,
    RuleRecord,
    new_rule,
    rule_patch,
    rules_of,
    state_of,
)
from thermal.dra.slices import SliceRecord
from thermal.errors import ApiError, ConflictError, NotFoundError, UnavailableError
from thermal.events import Announcement, about_node
from thermal.fleet import NodeStatus
from thermal.judging import Judgement, Leadership
from thermal.objects import Json, NodeRecord
from thermal.pacing import Pacer
from thermal.policy import Decision
from thermal.writer import NodeActuator

log = logging.getLogger(__name__)

_URGENT = frozenset({Heat.CRITICAL, Heat.EMERGENCY})
_RETRY_SECONDS = 30.0
#: How long a rule that was written may be missing from the cache before it counts as removed.
_SEEN_SECONDS = 10.0


class View(Protocol):
    """What is known of the cluster, from memory."""

    def nodes(self) -> dict[str, NodeRecord]:
        """Return all Nodes by name."""
        ...

    def slices(self) -> dict[str, SliceRecord]:
        """Return our ResourceSlices by name."""
        ...

    def rules(self) -> dict[str, RuleRecord]:
        """Return our DeviceTaintRules by name."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Write:
    """A rule to be written; the higher ``rank``, the sooner. Releases come last."""

    operation: str
    name: str
    body: Json
    node: str
    rank: tuple[int, float] = (-1, 0.0)


@dataclass(slots=True)
class _Memory:
    """What is remembered within one term of leadership."""

    pacer: Pacer = field(default_factory=Pacer)
    backoff: Backoff = field(default_factory=Backoff)
    retry_at: float = 0.0
    skip_until: dict[str, float] = field(default_factory=dict)
    written_at: dict[str, float] = field(default_factory=dict)
    paused_until: dict[str, float] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)


class Ruler:
    """Writes rules while this replica leads; :meth:`step` is one turn of its loop."""

    def __init__(
        self,
        config: Config,
        client: Api,
        *,
        view: View,
        judgement: Callable[[], Judgement | None],
        leadership: Leadership,
        actuator: NodeActuator,
        release: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._client = client
        self._view = view
        self._judgement = judgement
        self._leadership = leadership
        self._actuator = actuator
        self._release = release
        self._monotonic = monotonic
        self._memory = _Memory()
        self._term: int | None = None
        self.writes: Counter[str] = Counter({"create": 0, "update": 0, "delete": 0})

    def step(self) -> None:
        """Write as many rules as the pace allows."""
        judgement, now = self._judgement(), self._monotonic()
        if judgement is None or judgement.term != self._leadership.term:
            return
        if judgement.term != self._term:
            self._term, self._memory = judgement.term, _Memory()
        rules = self._view.rules()
        self._tell(rules)
        if now < self._memory.retry_at:
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
        nodes = self._view.nodes()
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
        released = node.override == "disabled" or decision.stop is None or decision.forget
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
                enforce=not self._only_observes(node, status),
                expelling=expelling,
            )
        )
        by_name = {record.rule.name: record for record in present}
        urgent, rank = decision.state in _URGENT, _rank(decision)
        if not urgent and self._held(node):
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

    def _held(self, node: NodeRecord) -> bool:
        return node.hold_until is not None and wallclock.moment() < node.hold_until

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

    def _only_observes(self, node: NodeRecord, status: NodeStatus) -> bool:
        vendors = {device.vendor for device in status.devices}
        return (
            self._config.mode == "observe"
            or self._config.taint != "NoSchedule"
            or node.override == "observe"
            or (bool(vendors) and vendors <= set(self._config.observe_vendors))
        )

    def _apply(self, write: _Write, now: float) -> bool:
        """Write; False where nothing else should be tried now."""
        memory, path = self._memory, f"{RULES}/{write.name}"
        try:
            if write.operation == "delete":
                self._client.delete(path)
            elif write.operation == "create":
                self._client.create(RULES, write.body)
            else:
                self._client.patch(path, write.body)
        except (ConflictError, NotFoundError):
            memory.skip_until[write.node] = now + 1.0
            return True
        except UnavailableError as error:
            delay = memory.backoff.next_delay_seconds()
            memory.retry_at = now + max(delay, error.retry_after_seconds or 0.0)
            log.warning("DeviceTaintRules cannot be written", extra=fields(error=error))
            return False
        except ApiError as error:
            memory.skip_until[write.node] = now + _RETRY_SECONDS
            log.error(  # noqa: TRY400 (one line)
                "DeviceTaintRule refused", extra=fields(node=write.node, error=error)
            )
            return True
        memory.backoff.reset()
        self.writes[write.operation] += 1
        if write.operation == "delete":
            memory.written_at.pop(write.name, None)
            memory.paused_until.pop(write.name, None)
        else:
            memory.written_at[write.name] = now
        # Written is not yet seen.
        memory.skip_until[write.node] = now + 2.0
        effect = write.body.get("spec", {}).get("taint", {}).get("effect")
        self._actuator.journal.note(
            "written", write.node, f"device taint rule: {write.operation} {effect or ''}".strip()
        )
        log.info(
            "device taint rule written",
            extra=fields(
                operation=write.operation, node=write.node, rule=write.name, effect=effect
            ),
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


def _rank(decision: Decision) -> tuple[int, float]:
    known = [device.celsius for device in decision.devices if device.celsius is not None]
    return severity(decision.state), max(known, default=0.0)


def _deletion(record: RuleRecord) -> _Write:
    return _Write(operation="delete", name=record.rule.name, body={}, node=record.rule.node)

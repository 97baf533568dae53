"""The acting loop: compares Nodes with the last judgement and writes what differs.

Level-triggered and paced: what cannot be written now is found different again a second later. A
restart needs no memory, and a Node that somebody else changed is put right, except where a person
took the taint away.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from daemon.backoff import Backoff
from daemon.logs import fields
from npu import heat
from thermal import taints, wallclock
from thermal.config import Config
from thermal.desired import Desired, desired_of, node_patch, status_patch, without_taints
from thermal.errors import ApiError, NotFoundError, UnavailableError
from thermal.events import about_namespace, storm_announcement
from thermal.fleet import NodeStatus
from thermal.groups import Group
from thermal.judging import Cluster, Judgement, Leadership
from thermal.manual import Manual
from thermal.metrics import Metrics
from thermal.objects import NodeRecord
from thermal.observing import only_observes
from thermal.pacing import Pacer
from thermal.policy import Decision
from thermal.writer import Desire, NodeActuator, NotLeaderError, Written

log = logging.getLogger(__name__)

_VALUE_SECONDS = 60.0
_NODE_RETRY_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """A node that does not look as decided. ``urgency`` 0 is a taint, 1 a condition."""

    urgency: int
    status: NodeStatus
    desire: Desire

    def rank(self) -> tuple[int, int]:
        """Return what to sort by: the most urgent first, and of those the hottest."""
        decision = self.status.decision
        return self.urgency, 0 if decision is None else -heat.severity(decision.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """A node and its status as they were compared, and what was found to do."""

    node: NodeRecord
    status: NodeStatus
    pending: _Pending | None

    def holds(self, node: NodeRecord, status: NodeStatus) -> bool:
        """Tell whether the same comparison would find the same."""
        urgent = self.pending is not None and self.pending.urgency == 0
        return self.node is node and self.status is status and not urgent


class Actor:
    """Acts while this replica leads; :meth:`step` is one turn of its loop."""

    def __init__(
        self,
        config: Config,
        *,
        cluster: Cluster,
        judgement: Callable[[], Judgement | None],
        leadership: Leadership,
        actuator: NodeActuator,
        metrics: Metrics,
        namespace: str = "default",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._namespace = namespace
        self._cluster = cluster
        self._judgement = judgement
        self._leadership = leadership
        self._actuator = actuator
        self._with_claims: frozenset[str] = frozenset()
        self._metrics = metrics
        self._monotonic = monotonic
        self._acting = self._fresh()

    def _fresh(self) -> "_Acting":
        return _Acting(Manual(pause_seconds=self._config.manual_pause_seconds))

    def step(self) -> None:
        """Write as many nodes as the pace allows, taints first."""
        judgement, now = self._judgement(), self._monotonic()
        if judgement is None or judgement.term != self._leadership.term:
            self._acting = self._fresh()
            return
        if now < self._acting.retry_at:
            return
        with_claims = self._cluster.claims()
        for moved in with_claims ^ self._with_claims:
            self._acting.compared.pop(moved, None)
        self._with_claims = with_claims
        pending = sorted(self._differing(judgement, now), key=_Pending.rank)
        self._metrics.waiting(len(pending))
        self._tell_storms(judgement.restrained.storms)
        pacer = self._acting.pacer
        # With more taints to write than may be written now, conditions wait until all are there.
        rush = sum(item.urgency == 0 for item in pending) > pacer.burst
        for item in pending:
            if not pacer.ready(now):
                return
            before = self._actuator.patches
            try:
                if not self._write(item, now, condition=not (rush and item.urgency == 0)):
                    return
            finally:
                pacer.spend(self._actuator.patches - before)

    def _tell_storms(self, storms: frozenset[Group]) -> None:
        if self._config.mode == "observe" or self._leadership.term is None:
            return
        for group in sorted(storms ^ self._acting.storms):
            self._actuator.announce(
                storm_announcement(group, began=group in storms), about_namespace(self._namespace)
            )
        self._acting.storms = storms

    def _differing(self, judgement: Judgement, now: float) -> Iterator[_Pending]:
        """Yield nodes that differ from their status.

        A node is compared again when it or its status is another object, which happens every few
        seconds, when its mode changes, and each time while its taint is not as decided: that
        depends on the time too.
        """
        nodes = self._cluster.nodes()
        compared: dict[str, _Compared] = {}
        for name, status in judgement.statuses.items():
            node = nodes.get(name)
            if node is None:
                continue
            last = self._acting.compared.get(name)
            if last is None or not last.holds(node, status):
                last = _Compared(node=node, status=status, pending=self._pending(node, status, now))
            compared[name] = last
            if last.pending is not None and now >= self._acting.skip_until.get(name, now):
                yield last.pending
        self._acting.compared = compared

    def _write(self, item: _Pending, now: float, *, condition: bool) -> bool:
        """Write one node; False where no other should be tried now."""
        name = item.status.node
        try:
            written = self._actuator.apply(
                name, item.desire, detail=_detail(item.status), condition=condition
            )
        except NotLeaderError:
            return False
        except NotFoundError:
            return True
        except UnavailableError as error:
            self._metrics.api_error(error)
            delay = max(self._acting.backoff.next_delay_seconds(), error.retry_after_seconds or 0.0)
            self._acting.retry_at = now + delay
            log.warning(
                "API server unavailable; nodes keep what they have",
                extra=fields(error=error, retry_in_seconds=round(delay, 1)),
            )
            return False
        except ApiError as error:
            self._metrics.api_error(error)
            self._acting.skip_until[name] = now + _NODE_RETRY_SECONDS
            log.error("node cannot be written", extra=fields(node=name, error=error))  # noqa: TRY400
            return True
        self._acting.backoff.reset()
        self._note(item.status, written, now)
        return True

    def _note(self, status: NodeStatus, written: Written, now: float) -> None:
        if "taints" in written.parts:
            self._acting.valued_at[status.node] = now
        if not written.parts:
            return
        self._metrics.wrote(written.parts)
        decision = status.decision
        condition = None if decision is None else decision.condition
        effect = taints.applied_effect(written.node.taints)
        self._actuator.journal.note(
            "written",
            status.node,
            f"{', '.join(written.parts)}; taint {effect or 'none'}; {_detail(status)}",
            reason=None if condition is None else condition.reason,
        )
        log.info(
            "node written",
            extra=fields(
                node=status.node,
                state=None if decision is None else decision.state.value,
                reason=None if condition is None else condition.reason,
                parts=",".join(written.parts),
                taint=effect,
                detail=_detail(status),
            ),
        )

    def _pending(self, node: NodeRecord, status: NodeStatus, now: float) -> _Pending | None:
        decision = status.decision
        if decision is None:
            return None
        if node.override == "disabled":
            desire: Desire = _released
        else:
            desire = self._desire(node, status, decision, now)
        desired = desire(node)
        body = node_patch(node, desired)
        condition = status_patch(node, desired.condition, wallclock.now())
        if body is None and condition is None:
            return None
        if node.override != "disabled" and only_observes(self._config, node, status):
            self._log_instead(node, decision, desired)
            return None
        urgency = 0 if body is not None and "spec" in body else 1 if condition is not None else 2
        return _Pending(urgency=urgency, status=status, desire=desire)

    def _desire(
        self, node: NodeRecord, status: NodeStatus, decision: Decision, now: float
    ) -> Desire:
        paused = self._acting.manual.paused(node, decision, now)
        fresh = now - self._acting.valued_at.get(node.name, float("-inf")) < _VALUE_SECONDS

        def desire(current: NodeRecord) -> Desired:
            present = taints.applied_effect(current.taints) is not None
            desired = desired_of(
                decision,
                current,
                effect=self._config.effect,
                since=status.since,
                devices=status.devices,
                paused=paused,
                keep_value=fresh and present,
            )
            if node.name not in self._with_claims:
                return desired
            return without_taints(
                desired,
                labels=self._config.dra.node_labels,
                condition=self._config.dra.node_condition,
            )

        return desire

    def _log_instead(self, node: NodeRecord, decision: Decision, desired: Desired) -> None:
        would = (decision.state.value, None if desired.hot is None else desired.hot.effect)
        if self._acting.would.get(node.name) != would:
            self._acting.would[node.name] = would
            log.info(
                "observing: node would be written",
                extra=fields(node=node.name, state=would[0], taint=would[1]),
            )


class _Acting:
    """What the acting loop remembers within one term."""

    def __init__(self, manual: Manual) -> None:
        self.manual = manual
        self.pacer = Pacer()
        self.backoff = Backoff()
        self.retry_at = 0.0
        self.skip_until: dict[str, float] = {}
        self.valued_at: dict[str, float] = {}
        self.compared: dict[str, _Compared] = {}
        self.storms: frozenset[Group] = frozenset()
        self.would: dict[str, tuple[str, str | None]] = {}


def _released(_node: NodeRecord) -> Desired:
    return Desired()


def _detail(status: NodeStatus) -> str:
    """Return the temperatures behind a decision, for people."""
    if status.decision is None:
        return ""
    return ", ".join(
        f"{device.device} {device.celsius:.0f} °C"
        for device in status.decision.devices
        if device.celsius is not None
    )

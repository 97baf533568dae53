"""The judging loop: reads exporters, advances heat machines, decides.

It writes nothing. Acting runs apart, so that an API server that hangs never keeps a temperature
from being seen.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from daemon.logs import fields
from thermal import taints, wallclock
from thermal.config import Config
from thermal.fleet import Fleet, NodeStatus, NodeTransition, is_ours
from thermal.groups import Group
from thermal.journal import Journal
from thermal.metrics import Metrics
from thermal.objects import NodeRecord, PodRecord
from thermal.policy import HeldBack
from thermal.readings import NodeSample
from thermal.restraint import FleetRestraint, Restrained
from thermal.source import Result, Source

log = logging.getLogger(__name__)


class Leadership(Protocol):
    """Whether this replica leads, and in which of its terms."""

    @property
    def term(self) -> int | None:
        """The number of the term, None while another replica leads."""
        ...


class Cluster(Protocol):
    """What is known of the cluster, from memory."""

    @property
    def synced(self) -> bool:
        """Whether everything was read once."""
        ...

    def nodes(self) -> dict[str, NodeRecord]:
        """Return all Nodes by name."""
        ...

    def pods(self) -> dict[str, PodRecord]:
        """Return the exporter Pods by name."""
        ...

    def claims(self) -> frozenset[str]:
        """Return the nodes on which devices are handed out, and tainted, in place of the Node."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The state of all managed nodes, valid in one term only.

    ``applied`` is the effect of our taint on the Nodes that have it, whatever was decided: in
    observe mode, where a person overruled us, and before a write they differ. ``remarks`` are for
    readers.
    """

    term: int
    statuses: Mapping[str, NodeStatus]
    undriven: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    applied: Mapping[str, str] = field(default_factory=dict)
    restrained: Restrained = field(default_factory=Restrained)
    remarks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Judge:
    """Judges while this replica leads; :meth:`step` is one turn of its loop."""

    def __init__(
        self,
        config: Config,
        *,
        cluster: Cluster,
        source: Source,
        leadership: Leadership,
        metrics: Metrics,
        journal: Journal | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._source = source
        self._leadership = leadership
        self._metrics = metrics
        self._journal = journal or Journal()
        self._monotonic = monotonic
        self._fleet: Fleet | None = None
        self._fleet_term: int | None = None
        self._restraint = self._new_restraint()
        self._weakened: dict[str, tuple[NodeStatus, NodeStatus]] = {}
        self._lock = threading.Lock()
        self._judgement: Judgement | None = None

    @property
    def judgement(self) -> Judgement | None:
        """The last judgement, None on a standby."""
        with self._lock:
            return self._judgement

    def step(self) -> None:
        """Read the exporters that are due and judge all nodes."""
        term = self._leadership.term
        if term is None or not self._cluster.synced:
            self._fleet = None
            self._publish(None)
            return
        if self._fleet is None or self._fleet_term != term:
            self._fleet, self._fleet_term = self._new_fleet(), term
            self._restraint, self._weakened = self._new_restraint(), {}
        nodes = {name: node for name, node in self._cluster.nodes().items() if self._manages(node)}
        pods = self._cluster.pods()
        targets, results = self._fleet.due(nodes, pods, self._monotonic())
        results = {**results, **self._source.read(targets)}
        self._count(results)
        now = self._monotonic()
        for change in self._fleet.observe(results, now):
            self._tell(change)
        statuses = self._restrained(self._fleet.judge(nodes, pods, now))
        self._publish(
            Judgement(
                term=term,
                statuses=statuses,
                undriven=self._fleet.undriven,
                applied=_applied(statuses, nodes),
                restrained=self._restraint.report,
            )
        )

    def _tell(self, change: NodeTransition) -> None:
        self._metrics.transition(change)
        moved = change.transition
        at = "" if moved.celsius is None else f" at {moved.celsius:.1f} °C"
        self._journal.note(
            "state",
            change.node,
            f"{change.device}: {moved.source.value} -> {moved.target.value}{at}",
            reason=moved.reason.value,
        )
        log.info(
            "heat state changed",
            extra=fields(
                node=change.node,
                device=change.device,
                source=moved.source.value,
                target=moved.target.value,
                reason=moved.reason.value,
                celsius=None if moved.celsius is None else round(moved.celsius, 1),
            ),
        )

    def _manages(self, node: NodeRecord) -> bool:
        return (
            self._config.include_control_plane
            or not node.reserved_for_control_plane
            or is_ours(node)
        )

    def _new_restraint(self) -> FleetRestraint:
        return FleetRestraint(
            budget=self._config.budget,
            storm=self._config.storm,
            resources=self._config.resources,
            closes=self._config.effect == "NoSchedule",
            nodes=self._cluster.nodes,
            monotonic=self._monotonic,
        )

    def _new_fleet(self) -> Fleet:
        return Fleet(
            self._config.settings,
            self._config.policy,
            interval_seconds=self._config.scrape.interval_seconds,
            warm_interval_seconds=self._config.scrape.warm_interval_seconds,
            wall=wallclock.now,
        )

    def _count(self, results: Mapping[str, Result]) -> None:
        for result in results.values():
            if isinstance(result, NodeSample):
                self._metrics.scraped("success", result.malformed)
            else:
                self._metrics.scraped(result.reason)

    def _restrained(self, statuses: dict[str, NodeStatus]) -> dict[str, NodeStatus]:
        """Put weakened decisions into the statuses.

        A status whose decision is weakened to the same once more stays the same object: the acting
        loop then knows that there is nothing new.
        """
        storms = self._restraint.report.storms
        weakened: dict[str, tuple[NodeStatus, NodeStatus]] = {}
        for decision in self._restraint([s.decision for s in statuses.values() if s.decision]):
            status = statuses[decision.node]
            if decision is status.decision:
                continue
            before = self._weakened.get(decision.node)
            if before is None or before[0] is not status or before[1].decision != decision:
                before = (status, replace(status, decision=decision))
            weakened[decision.node] = before
            statuses[decision.node] = before[1]
        self._tell_restraint(weakened, storms)
        self._weakened = weakened
        return statuses

    def _tell_restraint(
        self, weakened: Mapping[str, tuple[NodeStatus, NodeStatus]], storms: frozenset[Group]
    ) -> None:
        for node in sorted(weakened.keys() | self._weakened.keys()):
            before, after = _held_back(self._weakened.get(node)), _held_back(weakened.get(node))
            if before != after:
                self._journal.note(
                    "held_back",
                    node,
                    "less is done than the heat asks for" if after else "nothing is held back",
                    reason=",".join(after) or None,
                )
                log.info(
                    "action held back" if after else "action no longer held back",
                    extra=fields(node=node, reason=",".join(after) or None),
                )
        now = self._restraint.report.storms
        for group in sorted(now ^ storms):
            began = group in now
            self._metrics.storm(began=began)
            where = f"{group.kind} {group.name}".strip()
            self._journal.note("storm", None, f"{where}: {'began' if began else 'is over'}")
            log.warning(
                "storm: evictions are frozen" if began else "storm is over",
                extra=fields(scope=group.kind, name=group.name or None),
            )

    def _publish(self, judgement: Judgement | None) -> None:
        with self._lock:
            self._judgement = judgement
        if judgement is None:
            self._metrics.judged(None)
            return
        self._metrics.judged(
            judgement.statuses,
            tainted=frozenset(judgement.applied),
            evaluated_at=time.time(),
            restrained=judgement.restrained,
        )


def _applied(statuses: Mapping[str, NodeStatus], nodes: Mapping[str, NodeRecord]) -> dict[str, str]:
    found = {name: taints.applied_effect(nodes[name].taints) for name in statuses}
    return {name: effect for name, effect in found.items() if effect is not None}


def _held_back(weakened: tuple[NodeStatus, NodeStatus] | None) -> tuple[HeldBack, ...]:
    decision = None if weakened is None else weakened[1].decision
    return () if decision is None else decision.held_back

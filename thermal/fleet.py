"""All managed nodes: whom to ask now, the heat machine of each device, what may be published.

A node is managed while an exporter Pod on it reports an NPU, and as long as something of ours is
written on it. Used by one thread; time is passed in.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from npu import heat, ids
from npu.heat import Heat, Machine, Reading, Transition
from npu.thresholds import Settings, Thresholds, Trip
from thermal import record, taints
from thermal.names import ANNOTATION_STATE
from thermal.objects import NodeRecord, PodRecord
from thermal.policy import Decision, DeviceHeat, NodeHeat, Policy, decide
from thermal.readings import DeviceSample, NodeSample, busy_ratio
from thermal.source import Failure, Result, Target

#: From this size on, first scrapes are spread over an interval.
_SPREAD_FROM_NODES = 100
#: The judging loop turns once a second; a node that is due before the middle of the next turn is
#: due now.
_TURN_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """A managed node as last judged; ``decision`` is None while nothing may be published."""

    node: str
    decision: Decision | None
    devices: tuple[DeviceSample, ...]
    limits: Thresholds
    since: str
    sample_age_seconds: float
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTransition:
    """A transition of one device of a node."""

    node: str
    device: str
    transition: Transition


@dataclass(slots=True, kw_only=True)
class _Node:
    known_at: float
    due_at: float
    limits: Thresholds
    trips: tuple[Trip, ...] = ()
    machines: dict[str, Machine] = field(default_factory=dict)
    samples: dict[str, DeviceSample] = field(default_factory=dict)
    gone_since: dict[str, float] = field(default_factory=dict)
    adopted: record.Record | None = None
    state: Heat | None = None
    since: str = ""
    problem: str | None = None
    hardware: tuple[str, ...] = ()
    unscheduled_since: float | None = None


class Fleet:
    """The managed nodes."""

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        *,
        interval_seconds: float = 5.0,
        warm_interval_seconds: float = 2.0,
        wall: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._interval = interval_seconds
        self._warm_interval = warm_interval_seconds
        self._wall = wall
        self._nodes: dict[str, _Node] = {}
        self._observed: set[str] = set()
        self._statuses: dict[str, NodeStatus] = {}

    @property
    def undriven(self) -> dict[str, tuple[str, ...]]:
        """Nodes that have NPU hardware and no driver for it, and why."""
        return {name: node.hardware for name, node in self._nodes.items() if node.hardware}

    def due(
        self, nodes: Mapping[str, NodeRecord], pods: Mapping[str, PodRecord], now: float
    ) -> tuple[list[Target], dict[str, Result]]:
        """Return whom to ask now, and results that are known without asking.

        Nodes that no longer exist, and nodes without exporter that never were managed, are dropped.
        """
        exporters = _exporters(pods)
        for name in [name for name in self._nodes if name not in nodes]:
            del self._nodes[name]
            self._statuses.pop(name, None)
        for name, node in nodes.items():
            if name not in self._nodes and (name in exporters or is_ours(node)):
                self._nodes[name] = self._adopt(node, now, spread=len(nodes))
        targets: list[Target] = []
        known: dict[str, Result] = {}
        for name, watched in self._nodes.items():
            if watched.due_at > now + _TURN_SECONDS / 2:
                continue
            pod = exporters.get(name)
            if pod is None or pod.address is None or not pod.running:
                known[name] = Failure(reason="no_exporter")
            else:
                targets.append(Target(node=name, address=pod.address))
        return targets, known

    def observe(self, results: Mapping[str, Result], now: float) -> list[NodeTransition]:
        """Advance the machines of the nodes that were asked; return what changed."""
        changes: list[NodeTransition] = []
        for name, result in results.items():
            watched = self._nodes.get(name)
            if watched is not None:
                self._observed.add(name)
                changes += self._observe_node(name, watched, result, now)
        return changes

    def judge(
        self, nodes: Mapping[str, NodeRecord], pods: Mapping[str, PodRecord], now: float
    ) -> dict[str, NodeStatus]:
        """Return the status of every managed node that has or had an NPU.

        Only nodes observed since the last call are judged again; all others keep the very same
        status, so that a large fleet costs what changes in it.
        """
        scheduled = {pod.node for pod in pods.values() if pod.node}
        for name in self._observed:
            watched, node = self._nodes.get(name), nodes.get(name)
            if watched is None or node is None:
                continue
            status = self._judge_node(node, watched, now, scheduled=name in scheduled)
            if status is None:
                self._statuses.pop(name, None)
            else:
                self._statuses[name] = status
        self._observed.clear()
        return dict(self._statuses)

    def _judge_node(
        self, node: NodeRecord, watched: _Node, now: float, *, scheduled: bool
    ) -> NodeStatus | None:
        if scheduled:
            watched.unscheduled_since = None
        elif watched.unscheduled_since is None:
            watched.unscheduled_since = now
        since = watched.unscheduled_since
        devices = tuple(self._device_heats(watched, now))
        decision = decide(
            NodeHeat(
                node=node.name,
                devices=devices,
                settled=self._settled(watched, now),
                ready=node.ready,
                unscheduled_seconds=None if since is None else now - since,
            ),
            self._policy,
        )
        if decision is not None and decision.forget and not is_ours(node):
            del self._nodes[node.name]
            return None
        if not devices and decision is None:
            return None
        if decision is not None and decision.state is not watched.state:
            watched.state, watched.since = decision.state, self._wall()
        return NodeStatus(
            node=node.name,
            decision=decision,
            devices=tuple(watched.samples.values()),
            limits=watched.limits,
            since=watched.since,
            sample_age_seconds=max(
                (device.missing_seconds for device in devices), default=now - watched.known_at
            ),
            problem=watched.problem,
        )

    def _adopt(self, node: NodeRecord, now: float, *, spread: int) -> _Node:
        share = zlib.crc32(node.name.encode()) % 1000 / 1000 if spread > _SPREAD_FROM_NODES else 0.0
        watched = _Node(
            known_at=now,
            due_at=now + share * self._interval,
            limits=self._limits((), None, simulated=False),
        )
        adopted = record.decode(node.annotations.get(ANNOTATION_STATE))
        if adopted is None and taints.applied_effect(node.taints) is not None:
            # Closed by us, and somebody removed the record: what is not known may be hot.
            adopted = record.Record(state=Heat.HOT)
        if adopted is not None:
            watched.adopted = adopted
            watched.state, watched.since = adopted.state, adopted.since
            for device, state in adopted.devices.items():
                watched.machines[device] = heat.start(
                    now, before=state, hot_entries=adopted.hot_entries.get(device, 0)
                )
        return watched

    def _observe_node(
        self, name: str, watched: _Node, result: Result, now: float
    ) -> list[NodeTransition]:
        if isinstance(result, NodeSample):
            watched.problem = None
            watched.hardware = result.hardware
            self._meet(watched, result, now)
            present = {device.device: device for device in result.devices}
            mitigating = result.mitigating
        else:
            watched.problem = (
                f"{result.reason}: {result.detail}" if result.detail else result.reason
            )
            present, mitigating = {}, None
        changes: list[NodeTransition] = []
        for device, machine in list(watched.machines.items()):
            sample = present.get(device)
            reading = Reading()
            if sample is not None:
                reading = Reading(
                    celsius=sample.celsius,
                    clock_hertz=sample.clock_hertz,
                    busy_ratio=busy_ratio(watched.samples.get(device), sample),
                    mitigating=mitigating,
                )
                watched.samples[device] = sample
            stepped, transition = heat.step(machine, reading, now, watched.limits)
            watched.machines[device] = stepped
            if transition is not None:
                changes.append(NodeTransition(node=name, device=device, transition=transition))
        warm = any(
            heat.severity(machine.known) >= heat.severity(Heat.WARM)
            for machine in watched.machines.values()
        )
        watched.due_at = now + (self._warm_interval if warm else self._interval)
        return changes

    def _meet(self, watched: _Node, sample: NodeSample, now: float) -> None:
        """Take note of devices and trip points; forget devices that the exporter denies for long.

        Only a device that was not overheated is forgotten: an overheated one needs a reading.
        """
        before = Heat.COOL
        if watched.adopted is not None and not watched.adopted.devices:
            before = watched.adopted.state
        for device in sample.devices:
            if device.device not in watched.machines:
                watched.machines[device.device] = heat.start(now, before=before)
        seen = {device.device for device in sample.devices}
        for name, machine in list(watched.machines.items()):
            if name in seen:
                watched.gone_since.pop(name, None)
                continue
            since = watched.gone_since.setdefault(name, now)
            calm = machine.known not in heat.OVERHEATED
            if seen and calm and now - since >= self._policy.forget_seconds:
                del watched.machines[name], watched.gone_since[name]
                watched.samples.pop(name, None)
        if sample.devices:
            first = sample.devices[0]
            simulated = all(device.simulated for device in sample.devices)
            # Without trip points in this page, those of the last one still hold.
            watched.trips = sample.trips or watched.trips
            watched.limits = self._limits(watched.trips, first.model, simulated=simulated)

    def _limits(self, trips: tuple[Trip, ...], model: str | None, *, simulated: bool) -> Thresholds:
        return self._settings.resolve(model=model, trips=trips, simulated=simulated)

    def _device_heats(self, watched: _Node, now: float) -> list[DeviceHeat]:
        return [
            DeviceHeat(
                device=device,
                vendor=watched.samples[device].vendor if device in watched.samples else "",
                state=machine.state,
                known=machine.known,
                celsius=machine.celsius,
                missing_seconds=machine.missing_seconds(now),
                hot_entries=len(machine.hot_entries),
                state_seconds=max(0.0, now - machine.since),
            )
            for device, machine in sorted(
                watched.machines.items(), key=lambda item: ids.sort_key(item[0])
            )
        ]

    def _settled(self, watched: _Node, now: float) -> bool:
        lost = self._policy.lost_seconds
        return all(
            not machine.starting or machine.missing_seconds(now) >= lost
            for machine in watched.machines.values()
        )


def _exporters(pods: Mapping[str, PodRecord]) -> dict[str, PodRecord]:
    """Return one exporter Pod per node, the running one where an old one is still ending."""
    chosen: dict[str, PodRecord] = {}
    for pod in pods.values():
        if pod.node and (pod.node not in chosen or pod.running):
            chosen[pod.node] = pod
    return chosen


def is_ours(node: NodeRecord) -> bool:
    """Tell whether something of ours is written on a node, labels aside."""
    return (
        ANNOTATION_STATE in node.annotations
        or node.condition is not None
        or taints.applied_effect(node.taints) is not None
    )

"""Who acts on the boards: the platform as configured, or something simpler to compare it with."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ci.closedloop.board import SimulatedBoard
from npu import heat
from npu.heat import Heat, Machine
from plugin.clamp import ceiling, table
from plugin.config import HeatConfig, PluginConfig
from plugin.limiter import Limit, advance
from thermal import taints
from thermal.config import Config
from thermal.eviction import Pace, destinations, wants_eviction
from thermal.fleet import Fleet
from thermal.objects import NodeRecord, PodRecord
from thermal.readings import DeviceSample, NodeSample
from thermal.restraint import FleetRestraint
from thermal.taints import HotTaint, merged

if TYPE_CHECKING:
    from npu.thresholds import Thresholds
    from thermal.policy import Decision

_RESOURCE = "rockchip.com/npu"
_DEVICE = "npu0"
_EVICT_SECONDS = 5
#: The devfreq table of an RK3588.
CLOCKS_HERTZ = tuple(megahertz * 1_000_000 for megahertz in range(300, 1001, 100))


class Policy(Protocol):
    """Something that looks at boards once a second and acts on them."""

    def turn(self, boards: Sequence[SimulatedBoard], now: float) -> None:
        """Look at the boards, and close, open, limit or empty them."""
        ...


class KernelOnly:
    """Nobody acts: the kernel's own cap is all there is."""

    def turn(self, boards: Sequence[SimulatedBoard], now: float) -> None:
        """Do nothing."""


@dataclass(slots=True, kw_only=True)
class Taints:
    """Taints by temperature alone, as an administrator would script them; read every 5 s.

    ``evict_celsius`` None never evicts. ``hold_seconds`` is the least time between closing and
    opening.
    """

    close_celsius: float
    evict_celsius: float | None
    hysteresis_celsius: float
    hold_seconds: float
    closed_at: dict[str, float] = field(default_factory=dict)
    evicting: set[str] = field(default_factory=set)

    def turn(self, boards: Sequence[SimulatedBoard], now: float) -> None:
        """Compare with the limits."""
        if now % 5:
            return
        for board in boards:
            celsius = board.reading().celsius
            if celsius is not None:
                self._judge(board, celsius, now)

    def _judge(self, board: SimulatedBoard, celsius: float, now: float) -> None:
        if celsius >= self.close_celsius:
            if not board.closed:
                self.closed_at[board.name] = now
            board.close(closed=True)
        elif (
            celsius < self.close_celsius - self.hysteresis_celsius
            and now - self.closed_at.get(board.name, now) >= self.hold_seconds
        ):
            board.close(closed=False)
        if self.evict_celsius is None:
            return
        if celsius >= self.evict_celsius:
            self.evicting.add(board.name)
        elif celsius < self.evict_celsius - self.hysteresis_celsius:
            self.evicting.discard(board.name)
        if board.name in self.evicting:
            board.evict()


class PluginStep:
    """The device plugin's own step: slots on offer, and the clock where it is switched on."""

    def __init__(self, config: PluginConfig) -> None:
        self._pace = config.pace
        self._settings = config.thresholds
        self._period = int(config.rescan_period_seconds)
        self._clocks: tuple[int, ...] = ()
        if config.heat.clamp_frequency:
            self._clocks = table(CLOCKS_HERTZ, config.heat.clamp_ratio)
        self._limits: Thresholds = config.thresholds.resolve(model="rk3588")
        self._machines: dict[str, Machine] = {}
        self._slots: dict[str, Limit] = {}
        self._steps: dict[str, Limit] = {}

    def turn(self, boards: Sequence[SimulatedBoard], now: float) -> None:
        """Read, judge, limit."""
        if now % self._period:
            return
        for board in boards:
            machine = self._machines.get(board.name) or heat.start(now)
            machine, _ = heat.step(machine, board.reading(), now, self._limits)
            self._machines[board.name] = machine
            slots = self._slots[board.name] = self._advanced(
                self._slots.get(board.name), machine, board.slots, now
            )
            board.allowed = board.slots if slots.slots is None else slots.slots
            if self._clocks:
                steps = self._steps[board.name] = self._advanced(
                    self._steps.get(board.name), machine, len(self._clocks), now
                )
                clock = ceiling(self._clocks, steps)
                board.clamped = 1.0 if clock is None else clock / CLOCKS_HERTZ[-1]

    def _advanced(self, limit: Limit | None, machine: Machine, slots: int, now: float) -> Limit:
        return advance(
            limit or Limit(),
            machine,
            slots=slots,
            limits=self._limits,
            pace=self._pace,
            now=now,
        )


class Platform:
    """Plugin and guard of one cluster, with an API server that always answers.

    Without ``fleet_rules`` the boards are few among many cool nodes, so that neither the budget nor
    the storm brake has anything to say; with them the boards are the whole cluster.
    """

    def __init__(
        self,
        config: Config,
        heat_config: HeatConfig | None = None,
        *,
        fleet_rules: bool = False,
    ) -> None:
        self._config = config
        step = PluginConfig(heat=heat_config or HeatConfig(), thresholds=config.thresholds)
        self._plugin = PluginStep(step)
        self._guard = Fleet(
            config.settings,
            config.policy,
            interval_seconds=config.scrape.interval_seconds,
            warm_interval_seconds=config.scrape.warm_interval_seconds,
            wall=lambda: "",
        )
        self._now = 0.0
        self._nodes: dict[str, NodeRecord] = {}
        self._exporters: dict[str, PodRecord] = {}
        self._others = not fleet_rules
        self._restraint = FleetRestraint(
            budget=config.budget,
            storm=config.storm,
            resources=config.resources,
            closes=config.effect == "NoSchedule",
            nodes=lambda: self._nodes,
            monotonic=lambda: self._now,
        )
        self._decisions: dict[str, Decision] = {}
        self._pace = Pace(eviction=config.eviction)

    def turn(self, boards: Sequence[SimulatedBoard], now: float) -> None:
        """Let plugin and guard have their turns."""
        self._now = now
        self._plugin.turn(boards, now)
        by_name = {board.name: board for board in boards}
        if not self._nodes:
            self._nodes = {name: _node(name) for name in by_name}
            self._exporters = {
                name: PodRecord(name=name, uid=name, node=name, address=name, running=True)
                for name in by_name
            }
        targets, _ = self._guard.due(self._nodes, self._exporters, now)
        if targets:
            pages = {target.node: _page(by_name[target.node]) for target in targets}
            self._guard.observe(pages, now)
            self._act(by_name)
        if now % _EVICT_SECONDS == 0:
            self._evict(by_name)

    def _act(self, boards: dict[str, SimulatedBoard]) -> None:
        statuses = self._guard.judge(self._nodes, self._exporters, self._now)
        decisions = [status.decision for status in statuses.values() if status.decision]
        for decision in decisions if self._others else self._restraint(decisions):
            self._decisions[decision.node] = decision
            node, stop, effect = self._nodes[decision.node], decision.stop, self._config.effect
            hot = None
            if stop is not None and effect is not None:
                hot = HotTaint(effect="PreferNoSchedule" if stop.soft else effect, value="")
            written = merged(node.taints, hot)
            if written is None:
                continue
            self._nodes[decision.node] = _node(decision.node, written)
            # There is always a Pod that waits: a node that is only avoided gets it all the same.
            boards[decision.node].close(closed=taints.applied_effect(written) == "NoSchedule")

    def _evict(self, boards: dict[str, SimulatedBoard]) -> None:
        wanted = {name: one for name, one in self._decisions.items() if wants_eviction(one)}
        self._pace.keep(wanted)
        for name, decision in wanted.items():
            emergency = any(device.known is Heat.EMERGENCY for device in decision.devices)
            if not self._pace.admits(name, self._now, emergency=emergency):
                continue
            if not emergency and not self._others:
                fit = destinations(self._nodes, self._decisions, _RESOURCE, besides=name)
                if not any(len(boards[one].pods) < boards[one].allowed for one in fit):
                    continue
            self._pace.start(name, self._now)
            boards[name].evict()


def _node(name: str, written: Sequence[taints.Taint] = ()) -> NodeRecord:
    return NodeRecord(name=name, ready=True, allocatable={_RESOURCE: 1}, taints=tuple(written))


def _page(board: SimulatedBoard) -> NodeSample:
    reading = board.reading()
    device = DeviceSample(
        device=_DEVICE,
        vendor="rockchip",
        model="rk3588",
        celsius=reading.celsius,
        clock_hertz=reading.clock_hertz,
        busy_seconds={"all": board.busy_seconds},
        sampled_seconds={"all": board.now},
    )
    return NodeSample(devices=(device,))

"""The simulator's own metrics: what it played, to compare with what others measured."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from daemon.supervisor import Loop
from daemon.version import REVISION, VERSION
from simulator.allocation import Allocation
from simulator.control import ControlFile
from simulator.generations import Generations
from simulator.player import Player

_PREFIX = "npu_simulator"
_IDLE_REASONS = ("real_board", "no_board", "cannot_write")


class State(Collector):
    """Reads the state of the simulator's parts at each scrape."""

    def __init__(
        self,
        *,
        board_name: str | None,
        player: Player,
        control: ControlFile,
        allocation: Allocation,
        generations: Generations,
        loops: Callable[[], Sequence[Loop]],
    ) -> None:
        self._board_name = board_name
        self._player = player
        self._control = control
        self._allocation = allocation
        self._generations = generations
        self._loops = loops

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        yield from self._about()
        yield from self._played()
        control = GaugeMetricFamily(
            f"{_PREFIX}_control_active", "1 while a control file dictates something."
        )
        control.add_metric([], float(self._control.active))
        yield control
        yield _counter(
            "control_errors",
            "Contents of the control file that were ignored.",
            self._control.errors,
        )
        yield _counter(
            "write_errors",
            "Files of the tree that could not be written.",
            self._player.write_errors,
        )
        errors = CounterMetricFamily(
            f"{_PREFIX}_allocation_errors", "Times the kubelet did not tell.", labels=["reason"]
        )
        for reason, count in sorted(self._allocation.errors.items()):
            errors.add_metric([reason], count)
        yield errors
        steps = CounterMetricFamily(
            f"{_PREFIX}_loop_errors", "Loop steps that raised an error.", labels=["loop"]
        )
        for loop in self._loops():
            steps.add_metric([loop.name], loop.errors)
        yield steps

    def _about(self) -> Iterator[Metric]:
        build = GaugeMetricFamily(
            f"{_PREFIX}_build_info", "Version of the simulator.", labels=["version", "revision"]
        )
        build.add_metric([VERSION, REVISION], 1)
        yield build
        info = GaugeMetricFamily(
            f"{_PREFIX}_board_info", "The board that is played.", labels=["board"]
        )
        if self._player.idle is None and self._board_name is not None:
            info.add_metric([self._board_name], 1)
        yield info
        idle = GaugeMetricFamily(
            f"{_PREFIX}_idle", "1 while no board is played, by reason.", labels=["reason"]
        )
        for reason in _IDLE_REASONS:
            idle.add_metric([reason], float(self._player.idle == reason))
        yield idle
        nodes = GaugeMetricFamily(
            f"{_PREFIX}_device_nodes", "1 where the board's nodes are character devices."
        )
        nodes.add_metric([], float(self._player.idle is None and self._generations.device_nodes))
        yield nodes

    def _played(self) -> Iterator[Metric]:
        yield _counter(
            "windows", "Windows of one second whose load was written.", self._player.windows
        )
        busy = CounterMetricFamily(
            f"{_PREFIX}_busy_seconds",
            "Busy seconds in the windows that were written.",
            labels=["core"],
        )
        for core, seconds in sorted(self._player.busy_seconds.items()):
            busy.add_metric([str(core)], seconds)
        yield busy
        celsius = GaugeMetricFamily(
            f"{_PREFIX}_celsius", "Temperature at the NPU before the sensor rounds it."
        )
        ambient = GaugeMetricFamily(f"{_PREFIX}_ambient_celsius", "Temperature of the air.")
        capped = GaugeMetricFamily(f"{_PREFIX}_capped", "1 while the kernel caps the clock.")
        window = self._player.last
        if window is not None:
            celsius.add_metric([], window.celsius)
            ambient.add_metric([], window.ambient_celsius)
            capped.add_metric([], float(window.capped))
        yield celsius
        yield ambient
        yield capped


def registry(state: State) -> CollectorRegistry:
    """Return a registry with the simulator's and the process's metrics."""
    made = CollectorRegistry()
    ProcessCollector(registry=made)
    made.register(state)
    return made


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"{_PREFIX}_{name}", text, value=value)

"""Decides whether this node has a simulated board, and plays it."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Literal

from daemon.logs import fields
from kubelet.podresources import PodDevices
from npu import catalogue, devfreq
from npu.catalogue import Board, Simulation
from npu.errors import BoardError
from npu.host import Host
from npu.layout import expand
from npu.scan import scan
from npu.tree import SIMULATED_DEVICE, update
from simulator.ascend import AscendBoard
from simulator.board import SimulatedBoard, Window
from simulator.control import ControlFile
from simulator.generations import Generations
from simulator.settings import Settings

log = logging.getLogger(__name__)

#: How often the node is looked at for a real board, and the tree for its presence.
LOOK_SECONDS = 30.0
WINDOW_SECONDS = 1.0

Idle = Literal["starting", "real_board", "no_board", "cannot_write"]


class Player:
    """Owns the tree of one node.

    ``real`` is the real machine: where it has an NPU nothing is simulated, and a tree left from
    before is taken away. ``idle`` says why nothing is played, None while a board is.
    """

    def __init__(
        self,
        *,
        board_name: str | None,
        settings: Settings,
        real: Host,
        generations: Generations,
        control: ControlFile,
        held: Callable[[], tuple[PodDevices, ...]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._board_name = board_name
        self._settings = settings
        self._real = real
        self._generations = generations
        self._control = control
        self._held = held
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._board: SimulatedBoard | AscendBoard | None = None
        self._played_at: float | None = None
        self._failing: set[str] = set()
        self.idle: Idle | None = "starting"
        self.last: Window | None = None
        self.windows = 0
        self.busy_seconds: dict[int, float] = {}
        self.write_errors = 0

    def look(self) -> None:
        """Put the tree in force that this node shall have, or none."""
        with self._lock:
            if self._has_real_npu():
                self._rest("real_board")
            elif self._board_name is None:
                self._rest("no_board")
            else:
                self._ensure(self._board_name)

    def play(self) -> None:
        """Write the second that just passed."""
        control = self._control.step()
        with self._lock:
            now = self._monotonic()
            before, self._played_at = self._played_at, now
            if self.idle is not None or self._board is None or control.frozen:
                return
            if isinstance(self._board, SimulatedBoard):
                self._board.limit_hertz = self._limit_hertz(self._board.clocked_unit)
            window = self._board.window_for(
                self._held(),
                control,
                0.0 if before is None else now - before,
            )
            for path, content in window.files.items():
                self._write(path, content)
            self.last = window
            self.windows += 1
            for core, percent in enumerate(window.percents):
                busy = percent / 100 * WINDOW_SECONDS
                self.busy_seconds[core] = self.busy_seconds.get(core, 0.0) + busy

    def _limit_hertz(self, unit: str | None) -> int | None:
        """Return the clock limit that stands in the tree, where the device plugin may write it."""
        if unit is None:
            return None
        found = devfreq.limit(Host(self._generations.tree), unit, lambda _compatible: True)
        return None if found is None else found.maximum_hertz

    def problems(self) -> list[str]:
        """Return why the simulator does not do its work; idle by design is none."""
        if self.idle == "starting":
            return ["the node was not looked at yet"]
        if self.idle == "cannot_write":
            return ["the board's tree cannot be written, see the log"]
        failing = sorted(self._failing.copy())
        if failing:
            return [f"{len(failing)} files of the board cannot be written, such as {failing[0]}"]
        return []

    def _has_real_npu(self) -> bool:
        found = scan(self._real)
        return bool(found.npus or found.refused)

    def _ensure(self, name: str) -> None:
        board = catalogue.load(name)
        try:
            fresh = self._generations.install(
                name,
                expand(board, SIMULATED_DEVICE),
                device_nodes=self._settings.device_nodes,
            )
        except (OSError, BoardError) as error:
            if self.idle != "cannot_write":
                log.error("the board's tree cannot be written", extra=fields(error=error))  # noqa: TRY400
            self._stop("cannot_write")
            return
        if fresh or self.idle is not None:
            log.info("playing a board", extra=fields(board=name, written=fresh))
        if self._board is None and board.simulation is not None:
            self._board = _playable(board, board.simulation, self._settings)
        self.idle = None

    def _rest(self, reason: Idle) -> None:
        if self.idle != reason:
            log.warning(
                "idle: a real NPU is on this node"
                if reason == "real_board"
                else "idle: this node shall have no board",
                extra=fields(reason=reason),
            )
        self._stop(reason)
        if self._generations.remove():
            log.info("removed the simulated board that was here")

    def _stop(self, reason: Idle) -> None:
        self.idle, self._board, self.last = reason, None, None
        self._failing.clear()

    def _write(self, path: str, content: bytes) -> None:
        """Write one file; a directory that a test took away stays away."""
        try:
            update(self._generations.tree, {path: content})
        except OSError as error:
            self.write_errors += 1
            if path not in self._failing:
                self._failing.add(path)
                log.warning("file not written", extra=fields(path=path, error=error))
        else:
            self._failing.discard(path)


def _playable(
    board: Board, simulation: Simulation, settings: Settings
) -> SimulatedBoard | AscendBoard:
    if simulation.chips is not None:
        return AscendBoard(board, simulation, simulation.chips, settings)
    return SimulatedBoard(board, simulation, settings)

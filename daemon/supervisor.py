"""Runs the loops of a service until it is told to stop.

A loop is a step called at a fixed rate. A step that raises is logged, counted and called again: bad
hardware input never ends a daemon. A loop that stops ticking shows in :meth:`Supervisor.stalled`,
which is all that ``/healthz`` reports.
"""

import faulthandler
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Protocol

from daemon.logs import fields

log = logging.getLogger(__name__)

#: A loop is stalled when it has not ticked for this many periods, and at least this long.
STALL_PERIODS = 10
STALL_SECONDS = 30.0

Monotonic = Callable[[], float]


class Service(Protocol):
    """Something started before and stopped after the loops, for example a server."""

    def start(self) -> None:
        """Begin serving; raises where that is impossible."""
        ...

    def stop(self) -> None:
        """Stop within a few seconds; called once."""
        ...


@dataclass(slots=True, kw_only=True)
class Loop:
    """A named step run every ``period_seconds``.

    ``errors`` counts steps that raised; ``ticked_at`` is the monotonic time of the last completed
    step, failed or not: a failing step is a finding, a hanging one is a stall.
    """

    name: str
    period_seconds: float
    step: Callable[[], object]
    errors: int = 0
    ticked_at: float | None = None
    wake: threading.Event = field(default_factory=threading.Event)


class Supervisor:
    """Owns the life cycle of a service process.

    Services start in the given order and stop in reverse; each loop has a named thread. The first
    SIGTERM or SIGINT asks everything to stop; the second ends the process at once, by ``os._exit``,
    because the kernel ignores default signal actions for PID 1.
    """

    def __init__(self, *, monotonic: Monotonic = time.monotonic) -> None:
        self.stop = threading.Event()
        self._monotonic = monotonic
        self._loops: list[Loop] = []
        self._services: list[Service] = []
        self._failed = False
        self._signalled = False
        # Unlike an Event, whose lock a handler would wait for while it interrupts the holder, the
        # put of this queue may be called from a signal handler.
        self._asked: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._started_at = monotonic()

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops, for metrics."""
        return tuple(self._loops)

    def add_loop(self, loop: Loop) -> Loop:
        """Register a loop; call before :meth:`run`."""
        self._loops.append(loop)
        return loop

    def add_service(self, service: Service) -> None:
        """Register a service; call before :meth:`run`."""
        self._services.append(service)

    def stalled(self) -> list[str]:
        """Return the names of loops that do not tick."""
        now = self._monotonic()
        return [
            loop.name
            for loop in self._loops
            if now - (self._started_at if loop.ticked_at is None else loop.ticked_at)
            > max(STALL_SECONDS, STALL_PERIODS * loop.period_seconds)
        ]

    def fail(self, reason: str) -> None:
        """End the process with code 1 after an orderly stop."""
        log.error("stopping after a failure", extra=fields(reason=reason))
        self._failed = True
        self.request_stop()

    def request_stop(self) -> None:
        """Ask everything to stop; for any thread, not for signal handlers."""
        self._asked.put(None)
        self.stop.set()
        for loop in self._loops:
            loop.wake.set()

    def run(self) -> int:
        """Serve until stopped; return the exit code (0 asked to stop, 1 failed)."""
        self._install_signals()
        started: list[Service] = []
        threads = [
            threading.Thread(target=self._run_loop, args=(loop,), name=loop.name, daemon=True)
            for loop in self._loops
        ]
        try:
            for service in self._services:
                service.start()
                started.append(service)
            for thread in threads:
                thread.start()
            self._asked.get()
        except Exception:
            log.exception("start failed")
            self._failed = True
        finally:
            self.request_stop()
            for thread in threads:
                if thread.ident is not None:
                    thread.join(timeout=3.0)
            for service in reversed(started):
                try:
                    service.stop()
                except Exception:
                    log.exception("a service did not stop cleanly")
        log.info("stopped")
        return 1 if self._failed else 0

    def _run_loop(self, loop: Loop) -> None:
        due = self._monotonic()
        while not self.stop.is_set():
            loop.wake.clear()
            try:
                loop.step()
            except Exception:
                loop.errors += 1
                if loop.errors & (loop.errors - 1) == 0:  # the 1st, 2nd, 4th, 8th … time
                    log.exception(
                        "loop step failed", extra=fields(loop=loop.name, errors=loop.errors)
                    )
            now = self._monotonic()
            loop.ticked_at = now
            # Fixed rate; periods missed by a slow step are skipped, not made up for.
            due += loop.period_seconds * max(1, -(-(now - due) // loop.period_seconds))
            if loop.wake.wait(max(0.0, due - now)):
                due = self._monotonic()

    def _install_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        # The image has no shell and no debugger: kill -USR1 prints all stacks.
        faulthandler.register(signal.SIGUSR1, all_threads=True)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._signalled or self.stop.is_set():
            os._exit(128 + number)
        self._signalled = True
        self._asked.put(None)

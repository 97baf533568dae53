"""Loops tick, survive failing steps and stop; services stop in reverse order."""

import signal
import threading

import pytest

from daemon.supervisor import Loop, Supervisor


class Recorder:
    """A service that records what happens to it."""

    def __init__(self, name: str, journal: list[str], *, fails: bool = False) -> None:
        self._name, self._journal, self._fails = name, journal, fails

    def start(self) -> None:
        """Record the start, or fail."""
        if self._fails:
            raise OSError("address in use")
        self._journal.append(f"start {self._name}")

    def stop(self) -> None:
        """Record the stop."""
        self._journal.append(f"stop {self._name}")


def test_services_stop_in_reverse_order() -> None:
    """What was started last is stopped first; asked to stop is exit code 0."""
    journal: list[str] = []
    supervisor = Supervisor()
    supervisor.add_service(Recorder("a", journal))
    supervisor.add_service(Recorder("b", journal))
    supervisor.add_loop(Loop(name="end", period_seconds=1, step=supervisor.request_stop))

    assert supervisor.run() == 0

    assert journal == ["start a", "start b", "stop b", "stop a"]


def test_failing_start_stops_what_was_started() -> None:
    """A service that cannot start ends the process with code 1."""
    journal: list[str] = []
    supervisor = Supervisor()
    supervisor.add_service(Recorder("a", journal))
    supervisor.add_service(Recorder("b", journal, fails=True))

    assert supervisor.run() == 1

    assert journal == ["start a", "stop a"]


def test_failing_step_is_counted_and_called_again() -> None:
    """An exception in a step ends neither loop nor process."""
    supervisor = Supervisor()
    calls: list[int] = []

    def step() -> None:
        calls.append(1)
        if len(calls) == 3:
            supervisor.request_stop()
            return
        raise ValueError("bad sensor")

    loop = supervisor.add_loop(Loop(name="sensor", period_seconds=0.01, step=step))

    assert supervisor.run() == 0

    assert loop.errors == 2


def test_hanging_step_is_a_stall() -> None:
    """A loop that does not tick for long is named, a failing one is not."""
    now = [0.0]
    release = threading.Event()
    supervisor = Supervisor(monotonic=lambda: now[0])
    supervisor.add_loop(Loop(name="hangs", period_seconds=1, step=release.wait))
    thread = threading.Thread(target=supervisor.run)
    thread.start()

    now[0] = 29.0
    assert supervisor.stalled() == []
    now[0] = 31.0
    assert supervisor.stalled() == ["hangs"]

    release.set()
    supervisor.request_stop()
    thread.join(timeout=5)


def test_failure_gives_exit_code_1() -> None:
    """A service may end the process in order."""
    supervisor = Supervisor()
    supervisor.add_loop(
        Loop(name="end", period_seconds=1, step=lambda: supervisor.fail("no socket"))
    )

    assert supervisor.run() == 1


@pytest.mark.parametrize("period", [0.01, 1.0])
def test_wake_runs_the_step_early(period: float) -> None:
    """Setting the wake event runs a step without waiting for the period."""
    supervisor = Supervisor()
    seen = threading.Semaphore(0)
    loop = supervisor.add_loop(Loop(name="work", period_seconds=period, step=seen.release))
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    assert seen.acquire(timeout=5)

    loop.wake.set()

    assert seen.acquire(timeout=5)
    supervisor.request_stop()
    thread.join(timeout=5)


def test_a_signal_may_interrupt_any_use_of_the_stop_event() -> None:
    """The handler takes no lock that the interrupted main thread may hold."""
    supervisor = Supervisor()
    handled = threading.Event()

    def interrupt() -> None:
        supervisor._on_signal(signal.SIGTERM, None)
        handled.set()

    with supervisor.stop._cond:  # type: ignore[attr-defined]
        threading.Thread(target=interrupt, daemon=True).start()
        assert handled.wait(5)

    assert supervisor.run() == 0

"""Calls that may hang: bounded for the caller, one thread at most."""

import threading
from collections.abc import Iterator

import pytest

from exporter.worker import StuckError, Worker


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """A gate that is open at the end of the test, so that no thread stays."""
    event = threading.Event()
    yield event
    event.set()


def test_result_and_error_reach_the_caller() -> None:
    """What the function returns or raises is what the caller gets."""
    numbers = iter([1])
    worker = Worker("numbers", lambda: next(numbers))
    assert worker.call(5.0) == 1
    with pytest.raises(StopIteration):
        worker.call(5.0)


def test_stuck_call_is_reported_and_keeps_one_thread(gate: threading.Event) -> None:
    """Callers of a stuck worker go on, and no second thread is started for them."""
    worker = Worker("stuck-test", gate.wait)
    for _ in range(3):
        with pytest.raises(StuckError, match="stuck-test"):
            worker.call(0.01)
    assert [t.name for t in threading.enumerate()].count("stuck-test") == 1


def test_worker_recovers_when_its_call_returns(gate: threading.Event) -> None:
    """After a hang the next call is made afresh."""
    calls: list[int] = []

    def function() -> int:
        calls.append(1)
        gate.wait()
        return len(calls)

    worker = Worker("recovering", function)
    with pytest.raises(StuckError):
        worker.call(0.01)
    gate.set()
    assert worker.begin().result(5.0) in (1, 2)
    assert worker.call(5.0) >= 2


def test_callers_share_a_call_in_progress(gate: threading.Event) -> None:
    """Two scrapes at once read the hardware once."""
    calls: list[int] = []

    def function() -> int:
        calls.append(1)
        gate.wait()
        return 7

    worker = Worker("shared", function)
    first, second = worker.begin(), worker.begin()
    gate.set()
    assert (first.result(5.0), second.result(5.0)) == (7, 7)
    assert len(calls) == 1

"""The queue is bounded, ends without losing what it took, and slows down at heat."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from inference.backends import BackendError, Description, InputError, Session, Tensor
from inference.dispatcher import BusyError, Dispatcher, LateError


class Gate:
    """A backend whose runs wait until the test lets them go."""

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.running = 0
        self.most = 0
        self.lock = threading.Lock()
        self.closed = 0

    def describe(self) -> Description:
        """Return a name."""
        return Description(runtime="gate")

    def open(self, core: int | None) -> Session:
        """Return the one session."""
        return self

    def run(self, body: bytes) -> Sequence[Tensor]:
        """Wait to be let go."""
        if body == b"bad":
            raise InputError("bad")
        if body == b"broken":
            raise BackendError("broken")
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.go.acquire()
        with self.lock:
            self.running -= 1
        return (Tensor(name="out", shape=(1,), data=body),)

    def close(self) -> None:
        """Count."""
        self.closed += 1


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as made:
        yield made


def come_true(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_a_full_queue_refuses(gate: Gate, pool: ThreadPoolExecutor) -> None:
    """What runs is not in the queue, one more than the queue takes is told when to come back."""
    dispatcher = Dispatcher(gate, (0, 1), capacity=3)
    dispatcher.start()
    # Five at once would not all find a place before the workers have taken the first two.
    asked = [pool.submit(dispatcher.infer, b"x", within_seconds=20) for _ in range(2)]
    come_true(lambda: dispatcher.in_flight == 2)
    asked += [pool.submit(dispatcher.infer, b"x", within_seconds=20) for _ in range(3)]
    come_true(lambda: dispatcher.depth == 3)

    with pytest.raises(BusyError, match="full") as refused:
        dispatcher.infer(b"x", within_seconds=20)
    assert 1 <= refused.value.retry_seconds <= 30

    gate.go.release(5)
    assert [one.result()[0].data for one in asked] == [b"x"] * 5
    assert gate.most == 2
    dispatcher.stop()
    assert gate.closed == 2


def test_the_end_loses_nothing(gate: Gate, pool: ThreadPoolExecutor) -> None:
    """What was accepted is answered, what comes later is refused."""
    dispatcher = Dispatcher(gate, (0,), capacity=8)
    dispatcher.start()
    asked = [pool.submit(dispatcher.infer, b"x", within_seconds=20) for _ in range(3)]
    come_true(lambda: dispatcher.in_flight + dispatcher.depth == 3)
    ending = pool.submit(dispatcher.stop)

    def refused() -> bool:
        with pytest.raises((BusyError, LateError)) as raised:
            dispatcher.infer(b"y", within_seconds=0.001)
        return isinstance(raised.value, BusyError)

    come_true(refused)
    gate.go.release(3)
    assert [len(one.result()) for one in asked] == [1, 1, 1]
    ending.result()


def test_late_requests_leave_the_queue(gate: Gate, pool: ThreadPoolExecutor) -> None:
    """A request nobody waits for any more does not run."""
    dispatcher = Dispatcher(gate, (0,), capacity=8)
    dispatcher.start()
    first = pool.submit(dispatcher.infer, b"x", within_seconds=20)
    come_true(lambda: dispatcher.in_flight == 1)

    with pytest.raises(LateError):
        dispatcher.infer(b"late", within_seconds=0.01)

    assert dispatcher.depth == 0
    gate.go.release()
    first.result()
    dispatcher.stop()


def test_errors_belong_to_their_request(gate: Gate) -> None:
    """A worker goes on after one."""
    dispatcher = Dispatcher(gate, (None,), capacity=8)
    dispatcher.start()
    with pytest.raises(InputError):
        dispatcher.infer(b"bad", within_seconds=20)
    with pytest.raises(BackendError):
        dispatcher.infer(b"broken", within_seconds=20)
    gate.go.release()
    assert dispatcher.infer(b"good", within_seconds=20)
    dispatcher.stop()


def test_heat_halves_the_workers(gate: Gate, pool: ThreadPoolExecutor) -> None:
    """Of four workers two go on; all come back when it is over."""
    dispatcher = Dispatcher(gate, (0, 1, 2, 3), capacity=20)
    dispatcher.throttle(active=True)
    dispatcher.start()
    asked = [pool.submit(dispatcher.infer, b"x", within_seconds=20) for _ in range(8)]
    come_true(lambda: dispatcher.in_flight == 2 and dispatcher.depth == 6)
    gate.go.release(2)
    come_true(lambda: dispatcher.depth == 4 and gate.running == 2)
    assert gate.most == 2

    dispatcher.throttle(active=False)
    come_true(lambda: gate.running == 4)
    gate.go.release(6)
    for one in asked:
        one.result()
    dispatcher.stop()

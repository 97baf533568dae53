"""The bounded queue between requests and the workers, one per core.

Requests wait here, in the order they came, and nowhere else: what waits is what an autoscaler
reads. A full queue refuses at once, because a client that is told to come back does better than one
that waits for an answer nobody needs any more.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from daemon.logs import fields
from inference.backends import Backend, InputError, Session, Tensor
from inference.throttle import allowed

log = logging.getLogger(__name__)

_RETRY_SECONDS = (1, 30)
#: Weight of the newest run in the mean that clients are told to wait by.
_NEWEST = 0.2


class BusyError(RuntimeError):
    """The queue is full or the service ends; ``retry_seconds`` later is a good time to try."""

    def __init__(self, reason: str, retry_seconds: int) -> None:
        super().__init__(reason)
        self.retry_seconds = retry_seconds


class LateError(RuntimeError):
    """The request was not answered in time."""


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """A request on its way."""

    body: bytes
    queued_at: float
    done: threading.Event = field(default_factory=threading.Event)
    outputs: Sequence[Tensor] = ()
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """Who is told, in seconds, how long a request waited and how long it ran."""

    waited: Callable[[float], None] = lambda _seconds: None
    ran: Callable[[float], None] = lambda _seconds: None


class Dispatcher:
    """Runs requests on the sessions of a backend; a Service of the supervisor.

    ``cores`` has one entry per worker. ``drain_seconds`` is how long :meth:`stop` waits for what
    was accepted.
    """

    def __init__(
        self,
        backend: Backend,
        cores: Sequence[int | None],
        *,
        capacity: int,
        observer: Observer | None = None,
        drain_seconds: float = 20.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._cores = tuple(cores)
        self._capacity = capacity
        self._observer = observer or Observer()
        self._drain_seconds = drain_seconds
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._running = 0
        self._throttled = False
        self._ended = False
        self._mean_seconds = 0.0
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Load the model for every worker; raises BackendError where that is impossible."""
        sessions = [self._backend.open(core) for core in self._cores]
        for index, session in enumerate(sessions):
            thread = threading.Thread(
                target=self._work, args=(index, session), name=f"worker-{index}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Refuse what comes and finish what was accepted, as far as there is time."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            done = self._changed.wait_for(
                lambda: not self._waiting and not self._running, self._drain_seconds
            )
            left = len(self._waiting)
            self._waiting.clear()
        if not done:
            log.warning("requests were dropped", extra=fields(waiting=left, running=self._running))
        for thread in self._threads:
            thread.join(timeout=1.0)

    def throttle(self, *, active: bool) -> None:
        """Run at half speed from now on, or no more."""
        with self._changed:
            self._throttled = active
            self._changed.notify_all()

    @property
    def throttled(self) -> bool:
        """Whether the service runs at half speed."""
        return self._throttled

    @property
    def workers(self) -> int:
        """How many requests may run at once now."""
        return allowed(len(self._cores), throttled=self._throttled)

    @property
    def depth(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        """How many requests run."""
        return self._running

    def infer(self, body: bytes, *, within_seconds: float) -> Sequence[Tensor]:
        """Run a request and return its outputs.

        Raises BusyError at once where there is no place, LateError after ``within_seconds``,
        InputError and BackendError as the backend does.
        """
        job = Job(body=body, queued_at=self._monotonic())
        with self._changed:
            if self._ended:
                raise BusyError("the service ends", _RETRY_SECONDS[0])
            if len(self._waiting) >= self._capacity:
                raise BusyError("the queue is full", self._retry_seconds())
            self._waiting.append(job)
            self._changed.notify_all()
        if not job.done.wait(within_seconds):
            with self._changed:
                if job in self._waiting:
                    self._waiting.remove(job)
            raise LateError(f"no answer within {within_seconds:g} s")
        if job.error is not None:
            raise job.error
        return job.outputs

    def _retry_seconds(self) -> int:
        """Return when half of those who wait now will have run."""
        half = len(self._waiting) / 2 * self._mean_seconds / self.workers
        least, most = _RETRY_SECONDS
        return max(least, min(most, round(half)))

    def _work(self, index: int, session: Session) -> None:
        while (job := self._next(index)) is not None:
            began = self._monotonic()
            self._observer.waited(began - job.queued_at)
            try:
                job.outputs = session.run(job.body)
            except InputError as error:
                job.error = error
            except Exception as error:
                log.exception("a run failed")
                job.error = error
            seconds = self._monotonic() - began
            if job.error is None:
                self._observer.ran(seconds)
            with self._changed:
                self._running -= 1
                self._mean_seconds += _NEWEST * (seconds - self._mean_seconds)
                self._changed.notify_all()
            job.done.set()
            self._rest(seconds)
        session.close()

    def _next(self, index: int) -> Job | None:
        with self._changed:
            self._changed.wait_for(
                lambda: (self._waiting and index < self.workers) or (self._ended and self._idle())
            )
            if not self._waiting:
                return None
            self._running += 1
            return self._waiting.popleft()

    def _idle(self) -> bool:
        return not self._waiting

    def _rest(self, seconds: float) -> None:
        """Halve the speed of one worker alone: for as long as it worked."""
        if self._throttled and len(self._cores) == 1:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or not self._throttled, seconds)

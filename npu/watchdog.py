"""Reads with a time limit.

A driver file can block in the kernel (a regulator that does not answer, a wedged firmware), and no
signal ends such a read. So reads happen in one thread of their own: a caller waits only so long,
and while the thread is stuck every further read fails at once instead of piling up.
"""

import errno
import queue
import threading
from dataclasses import dataclass, field

from npu.errors import TransientError
from npu.host import Reader, read_bounded

_DEFAULT_LIMIT_SECONDS = 2.0


@dataclass(slots=True)
class _Job:
    path: str
    limit: int
    done: threading.Event = field(default_factory=threading.Event)
    content: bytes = b""
    error: Exception | None = None


class WatchedReader:
    """A :data:`npu.host.Reader` that answers within ``limit_seconds``.

    Raises TransientError with detail ``stuck`` where a read takes longer, and until that read has
    returned; otherwise what ``reader`` raises. Safe for several threads, which take turns.
    """

    def __init__(
        self, reader: Reader = read_bounded, *, limit_seconds: float = _DEFAULT_LIMIT_SECONDS
    ) -> None:
        self._reader = reader
        self._limit = limit_seconds
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._turn = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stuck_on: _Job | None = None

    @property
    def stuck_on(self) -> str | None:
        """The path of a read that has not returned in time, None while reads return."""
        job = self._stuck_on
        return None if job is None or job.done.is_set() else job.path

    def __call__(self, path: str, limit: int) -> bytes:
        """Read at most ``limit`` bytes of ``path``."""
        if self.stuck_on is not None or not self._turn.acquire(timeout=self._limit):
            raise self._stuck(path)
        try:
            if self.stuck_on is not None:
                raise self._stuck(path)
            job = _Job(path, limit)
            self._start()
            self._jobs.put(job)
            if not job.done.wait(self._limit):
                self._stuck_on = job
                raise self._stuck(path)
        finally:
            self._turn.release()
        if job.error is not None:
            raise job.error
        return job.content

    def close(self) -> None:
        """Let the thread end after the read it is in."""
        if self._thread is not None and self._thread.is_alive():
            self._jobs.put(None)

    def _stuck(self, path: str) -> TransientError:
        blocker = self.stuck_on
        detail = "stuck" if blocker in (None, path) else f"stuck behind {blocker}"
        return TransientError(path, errno.ETIMEDOUT, detail)

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="board-reads", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job.content = self._reader(job.path, job.limit)
            except Exception as error:  # noqa: BLE001 (handed to the caller, whatever it is)
                job.error = error
            job.done.set()

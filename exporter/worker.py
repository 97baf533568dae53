"""Calls that may hang, made in a thread of their own.

A read of a broken driver can block in the kernel, where no signal and no time limit reaches it. A
:class:`Worker` makes the call; its caller waits a bounded time and goes on. A stuck worker holds
one thread and never gets a second one.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar, cast

T = TypeVar("T")


class StuckError(Exception):
    """The call did not return in time; it may still be running."""


class Call(Generic[T]):
    """One call in progress or done."""

    def __init__(self, name: str, monotonic: Callable[[], float]) -> None:
        self._name = name
        self._monotonic = monotonic
        self._started_at = monotonic()
        self._done = threading.Event()
        self._result: T | None = None
        self._error: Exception | None = None

    @property
    def done(self) -> bool:
        """Whether the function has returned or raised."""
        return self._done.is_set()

    def make(self, function: Callable[[], T]) -> None:
        """Make the call, in the worker's thread."""
        try:
            self._result = function()
        except Exception as error:  # noqa: BLE001 - handed to the caller
            self._error = error
        self._done.set()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until the call is done and tell whether it is.

        The time counts from the beginning of the call, so that only the first caller waits for one
        that is stuck.
        """
        age = self._monotonic() - self._started_at
        return self._done.wait(max(0.0, timeout_seconds - age))

    def result(self, timeout_seconds: float) -> T:
        """Wait as :meth:`wait` does; return the function's result, or raise what it raised.

        Raises StuckError when the call is not done then.
        """
        if not self.wait(timeout_seconds):
            raise StuckError(f"{self._name} does not return")
        if self._error is not None:
            raise self._error
        return cast("T", self._result)


class Worker(Generic[T]):
    """Runs ``function`` in one daemon thread named ``name``, one call at a time.

    Callers that come while a call runs share its result.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[], T],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._function = function
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._wanted = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._call: Call[T] | None = None

    def begin(self) -> Call[T]:
        """Begin a call, or join the one in progress."""
        with self._lock:
            call = self._call
            if call is None or call.done:
                call = self._call = Call(self._name, self._monotonic)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    self._thread.start()
                self._wanted.release()
            return call

    def call(self, timeout_seconds: float) -> T:
        """Begin or join a call and wait for its result as :meth:`Call.result` does."""
        return self.begin().result(timeout_seconds)

    def _run(self) -> None:
        while self._wanted.acquire():
            if self._call is not None:
                self._call.make(self._function)

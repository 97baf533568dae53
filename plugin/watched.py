"""Calls that may hang in the kernel, made in a thread of their own."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class StuckError(Exception):
    """The call has not returned in time; it may be waiting in the kernel for good."""


class Watched(Generic[T]):
    """Runs ``function`` in one daemon thread, at most one call at a time.

    A call that does not return in time keeps its thread, and further calls fail at once until it
    comes back: threads must not pile up behind a driver that hangs.
    """

    def __init__(self, function: Callable[[], T], *, name: str, timeout_seconds: float) -> None:
        self._function = function
        self._name = name
        self._timeout = timeout_seconds
        self._thread: threading.Thread | None = None

    def __call__(self) -> T:
        """Return what the function returns, or raise what it raises; raises StuckError."""
        if self._thread is not None and self._thread.is_alive():
            raise StuckError(f"{self._name} has not returned since an earlier call")
        outcome: list[T] = []
        failure: list[Exception] = []

        def run() -> None:
            try:
                outcome.append(self._function())
            except Exception as error:  # noqa: BLE001 - raised again in the caller
                failure.append(error)

        self._thread = threading.Thread(target=run, name=self._name, daemon=True)
        self._thread.start()
        self._thread.join(self._timeout)
        if failure:
            raise failure[0]
        if not outcome:
            raise StuckError(f"{self._name} does not return within {self._timeout:g} s")
        return outcome[0]

"""A value that one thread publishes and others wait for."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Publication(Generic[T]):
    """Holds the newest value; reading never waits."""

    def __init__(self, value: T) -> None:
        self._value = value
        self._changed = threading.Condition()

    @property
    def value(self) -> T:
        """The newest value."""
        return self._value

    def publish(self, value: T) -> None:
        """Replace the value and wake everybody who waits."""
        with self._changed:
            self._value = value
            self._changed.notify_all()

    def wake(self) -> None:
        """Make everybody who waits look at their condition again."""
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, wanted: Callable[[T], bool], *, seconds: float | None = None) -> T:
        """Wait until ``wanted`` accepts the newest value, or that long; return the newest value."""
        with self._changed:
            self._changed.wait_for(lambda: wanted(self._value), timeout=seconds)
            return self._value

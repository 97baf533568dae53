"""Patience with clients: how long one may take, and which go first when there are too many.

A limit on each read alone is none: a client that sends a byte every nine seconds keeps its place
for ever, and five hundred of them keep everybody else out.
"""

import contextlib
import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

Monotonic = Callable[[], float]


class Deadline:
    """The time left for one request or answer, as the time limit of each operation on it."""

    def __init__(
        self, *, silence_seconds: float, total_seconds: float, monotonic: Monotonic = time.monotonic
    ) -> None:
        self._silence_seconds = silence_seconds
        self._total_seconds = total_seconds
        self._monotonic = monotonic
        self._until = 0.0
        self.restart()

    def restart(self) -> None:
        """Begin anew with the whole time."""
        self._until = self._monotonic() + self._total_seconds

    def left(self) -> float:
        """Return the seconds one operation may take; raises TimeoutError if there are none."""
        left = self._until - self._monotonic()
        if left <= 0:
            raise TimeoutError(f"not done after {self._total_seconds:g} s")
        return min(left, self._silence_seconds)


class TimedStream(io.RawIOBase):
    """A socket as a raw stream, every operation of which ends by the deadline."""

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        super().__init__()
        self._connection = connection
        self._deadline = deadline

    def readable(self) -> bool:
        """Say that this can be read."""
        return True

    def writable(self) -> bool:
        """Say that this can be written."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Receive what is there."""
        self._connection.settimeout(self._deadline.left())
        return self._connection.recv_into(buffer)

    def write(self, data: "ReadableBuffer", /) -> int:
        """Send what the connection takes."""
        self._connection.settimeout(self._deadline.left())
        return self._connection.send(data)


class Connections:
    """The open connections, at most ``limit``: those being answered, and those that wait.

    A connection waits until its request is complete and between requests. One too many takes the
    place of the one that has waited longest, which is shut down; only where every one is being
    answered the new one is refused. Connections are known by the accepted socket.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        #: Accepted socket → the socket to shut down, in the order of waiting.
        self._waiting: dict[object, object] = {}
        self._answered: dict[object, object] = {}
        self._closed = False

    def admit(self, accepted: object) -> bool:
        """Take a new connection; tell whether there is a place for it."""
        with self._lock:
            if self._closed:
                return False
            if len(self._waiting) + len(self._answered) >= self._limit:
                if not self._waiting:
                    return False
                longest = next(iter(self._waiting))
                _shut_down(self._waiting.pop(longest))
            self._waiting[accepted] = accepted
            return True

    def wrapped(self, accepted: object, wrapper: object) -> bool:
        """Note that TLS has taken the descriptor over; tell whether there is still a place."""
        with self._lock:
            if accepted not in self._waiting:
                return False
            self._waiting[accepted] = wrapper
            return True

    def answering(self, accepted: object) -> None:
        """Note that the request is complete: the connection keeps its place."""
        with self._lock:
            if accepted in self._waiting:
                self._answered[accepted] = self._waiting.pop(accepted)

    def waiting(self, accepted: object) -> None:
        """Note that the answer is sent: the connection waits, as the last in the row."""
        with self._lock:
            if accepted in self._answered:
                self._waiting[accepted] = self._answered.pop(accepted)
                if self._closed:
                    _shut_down(self._waiting[accepted])

    def close(self) -> None:
        """End all that wait, and each that is being answered once it waits; take no more."""
        with self._lock:
            self._closed = True
            for connection in self._waiting.values():
                _shut_down(connection)

    def leave(self, accepted: object) -> None:
        """Give the place back, before the socket is closed."""
        with self._lock:
            self._waiting.pop(accepted, None)
            self._answered.pop(accepted, None)


class Room:
    """Bytes of posted bodies in memory, at most ``limit``: received, waiting or being answered.

    A body takes its room as it arrives: one that is only announced keeps no other out.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def guest(self) -> Iterator[Callable[[int], bool]]:
        """Give a function that takes so many bytes and tells whether there are so many.

        What was taken is free again at the end.
        """
        taken = 0

        def take(size: int) -> bool:
            nonlocal taken
            with self._lock:
                if self._used + size > self._limit:
                    return False
                self._used += size
                taken += size
            return True

        try:
            yield take
        finally:
            with self._lock:
                self._used -= taken


def _shut_down(connection: object) -> None:
    # Not SSLSocket.shutdown, which would pull the TLS state from under the thread that reads.
    # A descriptor that is changing hands is found out by ``wrapped``.
    if isinstance(connection, socket.socket):
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connection, socket.SHUT_RDWR)

"""What a program does before anything else. Imports next to nothing."""

import os
import signal
from types import FrameType


def end_at_once_when_asked() -> None:
    """End the process at SIGTERM or SIGINT without further ado; call before slow imports.

    A container's main process is PID 1, for which the kernel ignores signals without a handler
    (signal(7)): told to stop while it still imports, it would stay for the Pod's whole grace
    period. The supervisor replaces the handlers when there is something to stop in order.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)


def _end(number: int, _frame: FrameType | None) -> None:
    # Nothing is open yet that would have to be closed.
    os._exit(128 + number)


def end_with_the_reader() -> None:
    """Let output into a closed pipe (``… | head``) end the program as it ends others."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)

"""One factor on every time limit of the development tools: ``NPU_PATIENCE``, 1 by default.

Time limits are chosen for ordinary machines. On an emulated one everything takes many times as
long and nothing else is different.
"""

import os
from typing import Final

VARIABLE: Final = "NPU_PATIENCE"


class PatienceError(RuntimeError):
    """The variable is not a number from 1 on."""


def factor() -> float:
    """Return the factor in force. Raises ``PatienceError`` naming the variable."""
    text = os.environ.get(VARIABLE, "1")
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1.0 <= value < float("inf"):
        message = f"{VARIABLE} must be a number from 1 on, found {text!r}"
        raise PatienceError(message)
    return value


def patient(seconds: float) -> float:
    """Return a time limit stretched by the factor."""
    return seconds * factor()

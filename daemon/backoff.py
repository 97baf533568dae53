"""Delays between attempts: exponential with full jitter."""

import random
from collections.abc import Callable


class Backoff:
    """Growing, random delays: each is uniform between 0 and a ceiling that doubles.

    Full jitter keeps many nodes from retrying in step after a common outage. ``uniform`` is a
    parameter for tests.
    """

    def __init__(
        self,
        *,
        first_seconds: float = 1.0,
        ceiling_seconds: float = 60.0,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first = first_seconds
        self._ceiling = ceiling_seconds
        self._uniform = uniform
        self.attempts = 0

    def next_delay_seconds(self) -> float:
        """Return the delay before the next attempt and count the attempt."""
        top = min(self._ceiling, self._first * 2.0 ** min(self.attempts, 32))
        self.attempts += 1
        return self._uniform(0.0, top)

    def reset(self) -> None:
        """Start over after a success."""
        self.attempts = 0

"""A token bucket: how many writes may be made now."""


class Pacer:
    """Allows ``rate_per_second`` on average and ``burst`` at once."""

    def __init__(self, *, rate_per_second: float = 10.0, burst: int = 10) -> None:
        self._rate = rate_per_second
        self._burst = float(burst)
        self._tokens = float(burst)
        self._at: float | None = None

    def take(self, now: float) -> bool:
        """Take one token at monotonic time ``now``; False where none is left."""
        if self._at is not None:
            self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

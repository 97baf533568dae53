"""A token bucket: how many writes may be made now."""


class Pacer:
    """Allows ``rate_per_second`` on average and ``burst`` at once.

    The defaults keep any ten seconds, with the burst of one more turn, below ten writes a second.

    What a caller is about to do may cost more than it can know before, so the bucket may be
    overdrawn: what was spent too much is waited for.
    """

    def __init__(self, *, rate_per_second: float = 9.0, burst: int = 9) -> None:
        self.burst = burst
        self._rate = rate_per_second
        self._tokens = float(burst)
        self._at: float | None = None

    def ready(self, now: float) -> bool:
        """Tell whether something may be spent at monotonic time ``now``."""
        if self._at is not None:
            gained = max(0.0, now - self._at) * self._rate
            self._tokens = min(float(self.burst), self._tokens + gained)
        self._at = now
        return self._tokens >= 1.0

    def spend(self, tokens: int) -> None:
        """Take tokens, also more than there are."""
        self._tokens -= tokens

    def take(self, now: float) -> bool:
        """Spend one, which is all that a caller with writes of one request needs to know."""
        if not self.ready(now):
            return False
        self.spend(1)
        return True

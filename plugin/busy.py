"""Evidence of use that nobody accounts for, or of a wedged NPU: full load and no holder. Pure.

A job that hangs counts as busy until its submitter's time is over, and after some faults for ever.
A program outside Kubernetes looks the same. Which of the two it is no file tells, so this is told
and by default changes nothing.
"""

from dataclasses import dataclass, replace
from typing import Final

#: A core that is this busy in every look is full; wedged ones read 99 or 100 %.
FULL_RATIO: Final = 0.99
#: The driver's load is that of one second: a single look proves nothing.
EVIDENT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unaccounted:
    """Since when a device has been full without a holder, monotonic; None while it is not.

    ``known`` tells whether the last look could tell at all: a driver without a load (Ascend's) and
    a kubelet that does not answer leave it open.
    """

    since: float | None = None
    known: bool = False

    def evident(self, now: float) -> bool:
        """Tell whether it has lasted long enough to be told."""
        return self.since is not None and now - self.since >= EVIDENT_SECONDS


def observe(
    before: Unaccounted, *, busiest_ratio: float | None, held: bool | None, now: float
) -> Unaccounted:
    """Take one look; ``held`` is None while the kubelet does not tell who holds what.

    An unknown load changes nothing. An unknown holder ends what was seen: evidence against nobody
    needs to know that there is nobody.
    """
    if held is None or held:
        return Unaccounted(known=held is not None)
    if busiest_ratio is None:
        return replace(before, known=False)
    if busiest_ratio < FULL_RATIO:
        return Unaccounted(known=True)
    return Unaccounted(since=now if before.since is None else before.since, known=True)

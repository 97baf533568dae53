"""From single temperature readings to a temperature that may be acted on.

A die follows its load by 10 °C and more within seconds and its sensor has steps of 0.923 °C, so
single readings decide nothing: the median of the last three removes outliers, and an exponential
average (40 % of a new value after five seconds) the rest. Readings no chip can have are refused.
"""

import math
import statistics
from dataclasses import dataclass, replace
from typing import Literal

MINIMUM_PLAUSIBLE_CELSIUS = -20.0
#: Larger steps between two readings count only when confirmed; dies really move 16 °C in 10 s.
_JUMP_CELSIUS = 25.0
_MEDIAN_OF = 3
_CONFIRMED_BY = 3
_REMAINDER = 0.6
_REMAINDER_SECONDS = 5.0

Verdict = Literal["accepted", "implausible", "jump"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """The filter's memory.

    ``raw`` holds the last accepted readings, newest last. ``smoothed_celsius`` is None until the
    first one. ``suspects`` are readings far off that wait for confirmation.
    """

    raw: tuple[float, ...] = ()
    smoothed_celsius: float | None = None
    accepted_at: float | None = None
    suspects: tuple[float, ...] = ()


def accept(
    signal: Signal, celsius: float, now: float, *, maximum_celsius: float
) -> tuple[Signal, Verdict]:
    """Take a reading made at monotonic time ``now``; an unaccepted one counts as none."""
    if not (math.isfinite(celsius) and MINIMUM_PLAUSIBLE_CELSIUS <= celsius <= maximum_celsius):
        return signal, "implausible"
    if signal.raw and abs(celsius - signal.raw[-1]) > _JUMP_CELSIUS:
        agreeing = signal.suspects and abs(celsius - signal.suspects[-1]) <= _JUMP_CELSIUS
        suspects = (*signal.suspects, celsius) if agreeing else (celsius,)
        if len(suspects) < _CONFIRMED_BY:
            return replace(signal, suspects=suspects), "jump"
        signal = replace(signal, raw=suspects[:-1])
    raw = (*signal.raw, celsius)[-_MEDIAN_OF:]
    middle = statistics.median(raw)
    if signal.smoothed_celsius is None or signal.accepted_at is None:
        smoothed = middle
    else:
        passed = max(0.0, now - signal.accepted_at)
        weight = 1.0 - _REMAINDER ** (passed / _REMAINDER_SECONDS)
        smoothed = signal.smoothed_celsius + weight * (middle - signal.smoothed_celsius)
    return Signal(raw=raw, smoothed_celsius=smoothed, accepted_at=now), "accepted"

"""A board with Pods on it, second by second."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from npu.catalogue import Heating
from npu.heat import Reading
from npu.thermal_model import ThermalState, sensor_millicelsius, step, temperature_celsius

#: A Pod loads its share of the NPU this much while it runs.
BUSY_RATIO = 0.95
FULL_HERTZ = 1_000_000_000.0
#: A new Pod needs this long from its scheduling to its first job.
START_SECONDS = 5.0
#: An evicted Pod ends within this time.
GRACE_SECONDS = 10.0
WATCHED_CELSIUS = 80.0
_NOISE_CELSIUS = 0.3
_HOUR = 3600.0


@dataclass(slots=True, kw_only=True)
class Pod:
    """A Pod; times are seconds of the simulation."""

    works_from: float
    ends_at: float
    evicted: bool = False


@dataclass(slots=True, kw_only=True)
class Tally:
    """What happened on a board. ``work`` is busy slots, times what a lowered clock leaves."""

    seconds: float = 0.0
    above_seconds: float = 0.0
    peak_celsius: float = -math.inf
    closings: int = 0
    openings: int = 0
    evictions: int = 0
    busy_slot_seconds: float = 0.0
    work_seconds: float = 0.0

    def merged(self, other: "Tally") -> "Tally":
        """Return the sum of two; the peak is the higher one."""
        return Tally(
            seconds=self.seconds + other.seconds,
            above_seconds=self.above_seconds + other.above_seconds,
            peak_celsius=max(self.peak_celsius, other.peak_celsius),
            closings=self.closings + other.closings,
            openings=self.openings + other.openings,
            evictions=self.evictions + other.evictions,
            busy_slot_seconds=self.busy_slot_seconds + other.busy_slot_seconds,
            work_seconds=self.work_seconds + other.work_seconds,
        )

    @property
    def above_ratio(self) -> float:
        """Share of the time at or above 80 °C."""
        return self.above_seconds / self.seconds

    @property
    def flips_per_hour(self) -> float:
        """Closings and openings together."""
        return (self.closings + self.openings) * _HOUR / self.seconds

    @property
    def evictions_per_hour(self) -> float:
        """Evicted Pods."""
        return self.evictions * _HOUR / self.seconds

    @property
    def busy_slots(self) -> float:
        """Mean number of slots with a working Pod."""
        return self.busy_slot_seconds / self.seconds

    @property
    def work(self) -> float:
        """Mean number of slots' worth of work at full clock."""
        return self.work_seconds / self.seconds


@dataclass(slots=True, kw_only=True)
class SimulatedBoard:
    """A board, the Pods on it, and what a policy lets it have.

    There is always a Pod that waits: a free slot that is on offer is taken at once, unless the
    node is ``closed`` for new Pods. ``allowed`` is how many slots may be held or on offer.
    ``clamped`` is the highest clock as a share of the full one.
    """

    name: str
    heating: Heating
    slots: int
    ambient: Callable[[float], float]
    pod_seconds: Callable[[], float]
    chance: random.Random
    allowed: int = 0
    closed: bool = False
    clamped: float = 1.0
    pods: list[Pod] = field(default_factory=list)
    state: ThermalState = field(default_factory=ThermalState)
    celsius: float = 0.0
    busy_seconds: float = 0.0
    now: float = 0.0
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        """Begin at the air's temperature, with all slots."""
        self.allowed = self.slots
        self.celsius = temperature_celsius(self.heating, self.state, self.ambient(0.0))

    def advance(self, now: float) -> None:
        """Let a second pass."""
        self.now = now
        self.pods = [pod for pod in self.pods if pod.ends_at > now]
        while not self.closed and len(self.pods) < self.allowed:
            begins = now + START_SECONDS
            self.pods.append(Pod(works_from=begins, ends_at=begins + self.pod_seconds()))
        working = sum(pod.works_from <= now for pod in self.pods)
        load = BUSY_RATIO * working / self.slots
        ambient = self.ambient(now)
        heating, load_ratio = self._clamped(load)
        self.state = step(
            heating, self.state, dt_seconds=1.0, load_ratio=load_ratio, ambient_celsius=ambient
        )
        self.celsius = temperature_celsius(self.heating, self.state, ambient)
        self.busy_seconds += BUSY_RATIO * (working > 0)
        tally = self.tally
        tally.seconds += 1.0
        tally.above_seconds += self.celsius >= WATCHED_CELSIUS
        tally.peak_celsius = max(tally.peak_celsius, self.celsius)
        tally.busy_slot_seconds += working
        tally.work_seconds += working * self.hertz / FULL_HERTZ

    def _clamped(self, load: float) -> tuple[Heating, float]:
        """Return the model for a clamped clock: power goes with the square of the clock."""
        if self.clamped >= 1.0:
            return self.heating, load
        power = self.clamped**2
        heating, governor = self.heating, self.heating.governor
        if governor is not None:
            kept = min(1.0, governor.capped_power_ratio / power)
            heating = replace_governor(heating, kept)
        return heating, load * power

    @property
    def hertz(self) -> float:
        """The clock."""
        governor = self.heating.governor
        capped = governor is not None and self.state.capped
        kernel = governor.capped_hertz if governor is not None and capped else FULL_HERTZ
        return min(float(kernel), self.clamped * FULL_HERTZ)

    def reading(self) -> Reading:
        """Return what the sensors show now: quantised, noisy."""
        noisy = self.celsius + self.chance.gauss(0.0, _NOISE_CELSIUS)
        working = any(pod.works_from <= self.now for pod in self.pods)
        return Reading(
            celsius=sensor_millicelsius(noisy) / 1000,
            clock_hertz=self.hertz,
            busy_ratio=BUSY_RATIO if working else 0.0,
        )

    def close(self, *, closed: bool) -> None:
        """Close the node for new Pods, or open it, and count a change."""
        if closed and not self.closed:
            self.tally.closings += 1
        if self.closed and not closed:
            self.tally.openings += 1
        self.closed = closed

    def evict(self) -> None:
        """Evict all Pods that are not leaving yet."""
        for pod in self.pods:
            if not pod.evicted:
                pod.evicted = True
                pod.ends_at = min(pod.ends_at, self.now + GRACE_SECONDS)
                self.tally.evictions += 1


def replace_governor(heating: Heating, capped_power_ratio: float) -> Heating:
    """Return the model with another effect of the kernel's cap."""
    if heating.governor is None:
        return heating
    governor = msgspec.structs.replace(heating.governor, capped_power_ratio=capped_power_ratio)
    return msgspec.structs.replace(heating, governor=governor)

"""Busy and sampled core time, per core and per Pod. Pure: time and readings are arguments.

The driver publishes the busy share of its last finished one-second window. A sample therefore
speaks for at most one second, however long ago the one before was taken, and a missed sample adds
nothing to either counter: their ratio stays honest over gaps.

While a device is busy, each of its busy core-seconds is given to its holders or counted as
unaccounted, so that for every device::

    busy = given to Pods + unaccounted
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from npu.model import CoreLoad

#: Length of the window that the driver's load speaks for.
WINDOW_SECONDS: Final = 1.0

Attribution = Literal["exclusive", "estimated"]
UnaccountedReason = Literal["no_holder", "holders_unknown"]
UNACCOUNTED_REASONS: Final[tuple[UnaccountedReason, ...]] = ("no_holder", "holders_unknown")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Pod:
    """A Pod by its name; the kubelet's PodResources API does not tell its UID."""

    namespace: str
    name: str


#: The Pods that hold each device; None where that is not known.
Holders = Mapping[str, Sequence[Pod]] | None


@dataclass(slots=True, kw_only=True)
class CoreTime:
    """Seconds that a core was busy, and that were sampled at all."""

    busy_seconds: float = 0.0
    sampled_seconds: float = 0.0


@dataclass(slots=True, kw_only=True)
class _Device:
    sampled_at: float | None = None
    cores: dict[int, CoreTime] = field(default_factory=dict)
    out_of_range: int = 0
    unaccounted: dict[UnaccountedReason, float] = field(
        default_factory=lambda: dict.fromkeys(UNACCOUNTED_REASONS, 0.0)
    )


class Account:
    """Accumulates samples. All times are seconds of one monotonic clock; safe to use from threads.

    ``retention_seconds`` is how long a Pod's counters outlive its last hold, so that their final
    value is scraped.
    """

    def __init__(self, *, retention_seconds: float = 300.0) -> None:
        self._retention = retention_seconds
        self._lock = threading.Lock()
        self._devices: dict[str, _Device] = {}
        self._pods: dict[tuple[Pod, Attribution], float] = {}
        self._held_at: dict[Pod, float] = {}

    def record(self, device: str, at: float, loads: Sequence[CoreLoad], holders: Holders) -> None:
        """Add a good sample of ``device`` taken at ``at``.

        The first sample of a device, and of a core, only starts its counters at 0.
        """
        with self._lock:
            account = self._devices.setdefault(device, _Device())
            covered = 0.0
            if account.sampled_at is not None:
                covered = min(max(0.0, at - account.sampled_at), WINDOW_SECONDS)
            account.sampled_at = at
            busy = 0.0
            for load in loads:
                account.out_of_range += load.clamped
                if (core := account.cores.get(load.core)) is None:
                    account.cores[load.core] = CoreTime()
                    continue
                seconds = min(max(load.ratio, 0.0), 1.0) * covered
                core.busy_seconds += seconds
                core.sampled_seconds += covered
                busy += seconds
            if account.cores:
                self._attribute(account, busy, None if holders is None else holders.get(device, ()))

    def _attribute(self, account: _Device, busy: float, pods: Sequence[Pod] | None) -> None:
        if pods is None:
            account.unaccounted["holders_unknown"] += busy
        elif not pods:
            account.unaccounted["no_holder"] += busy
        else:
            attribution: Attribution = "exclusive" if len(pods) == 1 else "estimated"
            for pod in pods:
                key = (pod, attribution)
                self._pods[key] = self._pods.get(key, 0.0) + busy / len(pods)

    def hold(self, holders: Mapping[str, Sequence[Pod]], at: float) -> None:
        """Note who holds devices at ``at``: new holders start at 0, long gone ones are dropped.

        Holders of devices whose load nobody measures start at nothing: a bill must not say 0.
        """
        with self._lock:
            for device, pods in holders.items():
                attribution: Attribution = "exclusive" if len(pods) == 1 else "estimated"
                for pod in pods:
                    self._held_at[pod] = at
                    if self._device(device).cores:
                        self._pods.setdefault((pod, attribution), 0.0)
            gone = {pod for pod, seen in self._held_at.items() if at - seen > self._retention}
            for pod in gone:
                del self._held_at[pod]
            for key in [key for key in self._pods if key[0] in gone]:
                del self._pods[key]

    def cores(self, device: str) -> dict[int, CoreTime]:
        """Return a copy of the counters of each core of ``device``."""
        with self._lock:
            return {number: replace(core) for number, core in self._device(device).cores.items()}

    def out_of_range(self, device: str) -> int:
        """Return how many core loads of ``device`` were above 100 %."""
        with self._lock:
            return self._device(device).out_of_range

    def unaccounted(self, device: str) -> dict[UnaccountedReason, float]:
        """Return the busy core-seconds of ``device`` that no Pod was given, by reason.

        Nothing for a device whose load was never measured.
        """
        with self._lock:
            account = self._device(device)
            return dict(account.unaccounted) if account.cores else {}

    def pods(self) -> dict[tuple[Pod, Attribution], float]:
        """Return the busy core-seconds given to each Pod."""
        with self._lock:
            return dict(self._pods)

    def _device(self, device: str) -> _Device:
        return self._devices.get(device) or _Device()

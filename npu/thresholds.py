"""Temperatures and times that decide when a device is hot.

Settings are what a person configures, once for plugin and guard. :meth:`Settings.resolve` turns
them into the limits of one board: the trip points its kernel really has come first, then what the
kernels for its chip usually have.

All temperatures hang on two facts of a board: the temperature at which the kernel starts to slow
the chip down (the control target, the highest passive trip of a zone) and the one at which it
powers the board off (the critical trip). ``hot`` lies below the control target, because a governed
chip never gets above it, and ``critical`` above, because only failed mitigation gets there.
"""

import itertools
import math
from collections.abc import Iterable
from typing import Literal

import msgspec

Preset = Literal["auto", "rk3588", "rk3576", "rk356x", "ascend"]

#: Least distance between entering and leaving a state: three steps of the 0.923 °C sensor.
MINIMUM_HYSTERESIS_CELSIUS = 3.0
#: Shortest hold of ``hot`` on a real board; below it, removing load looks like recovery.
MINIMUM_HOLD_SECONDS = 60.0

_HIGHEST_CRITICAL_CELSIUS = 88.0
_CRITICAL_ABOVE_TARGET_CELSIUS = 3.0
_CRITICAL_BELOW_SHUTDOWN_CELSIUS = 15.0
_HOT_BELOW_CRITICAL_CELSIUS = 8.0
_WARM_BELOW_HOT_CELSIUS = 8.0
_EMERGENCY_ABOVE_CRITICAL_CELSIUS = 12.0
_SATURATED_BELOW_CRITICAL_CELSIUS = 4.0
_WARM_HYSTERESIS_CELSIUS = 4.0
_HOT_HYSTERESIS_CELSIUS = 10.0
_CRITICAL_HYSTERESIS_CELSIUS = 13.0
#: A reading further above the shutdown trip is a placeholder or a broken table.
_PLAUSIBLE_ABOVE_SHUTDOWN_CELSIUS = 5.0
#: Trips outside are no control target of a chip (fan curves, wifi modules, garbage).
_TARGET_RANGE_CELSIUS = (50.0, 110.0)
_SHUTDOWN_RANGE_CELSIUS = (80.0, 130.0)
#: Zone types that belong to the chip, by prefix.
_CHIP_ZONES = ("soc", "package", "cpu", "big", "little", "center", "gpu", "npu")


class ThresholdError(ValueError):
    """The temperatures contradict each other; the message names the keys."""


class Trip(msgspec.Struct, frozen=True, kw_only=True):
    """A trip point of a board: zone type, kind as in sysfs (passive, critical, …), temperature."""

    zone: str
    kind: str
    celsius: float


class Anchors(msgspec.Struct, frozen=True, kw_only=True):
    """The two facts all temperatures are derived from."""

    target_celsius: float
    shutdown_celsius: float


_ASCEND = "ascend"
#: Control target and shutdown trip in the kernels for a chip: rk3588*.dtsi and rk3576.dtsi have
#: 85 and 115 °C, rk356x.dtsi 75 and 95 °C. Huawei publishes no limits for Ascend but an alarm above
#: 95 °C of its memory; these keep ``hot`` and ``critical`` below that.
PRESETS: dict[str, Anchors] = {
    "rk3588": Anchors(target_celsius=85.0, shutdown_celsius=115.0),
    "rk3576": Anchors(target_celsius=85.0, shutdown_celsius=115.0),
    "rk356x": Anchors(target_celsius=75.0, shutdown_celsius=95.0),
    _ASCEND: Anchors(target_celsius=90.0, shutdown_celsius=105.0),
}


class Timing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Debounce times and holds, all in seconds.

    The defaults come from a simulation of passively cooled boards with a fast (8 s) and a slow
    (220 s) time constant: hysteresis and hold together outlast the fast fall after load is gone.
    """

    hot_enter_seconds: float = 15.0
    hot_leave_seconds: float = 60.0
    hot_hold_seconds: float = 180.0
    hot_hold_maximum_seconds: float = 720.0
    hot_window_seconds: float = 3600.0
    throttle_seconds: float = 60.0
    saturated_seconds: float = 600.0
    critical_enter_seconds: float = 10.0
    critical_hold_seconds: float = 180.0
    recovering_seconds: float = 600.0
    missing_seconds: float = 15.0
    lost_seconds: float = 60.0
    lost_leave_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Refuse times that cannot work."""
        problems = [
            f"{_camel(name)} must be a positive number of seconds"
            for name in self.__struct_fields__
            if not 0 < getattr(self, name) < math.inf
        ]
        if self.hot_hold_maximum_seconds < self.hot_hold_seconds:
            problems.append("hotHoldMaximumSeconds must not be below hotHoldSeconds")
        if self.lost_seconds < self.missing_seconds:
            problems.append("lostSeconds must not be below missingSeconds")
        if problems:
            raise ThresholdError("; ".join(problems))

    def for_board(self, *, simulated: bool) -> "Timing":
        """Return these times with the shortest hold a real board may have."""
        if simulated or self.hot_hold_seconds >= MINIMUM_HOLD_SECONDS:
            return self
        return msgspec.structs.replace(
            self,
            hot_hold_seconds=MINIMUM_HOLD_SECONDS,
            hot_hold_maximum_seconds=max(MINIMUM_HOLD_SECONDS, self.hot_hold_maximum_seconds),
        )

    def for_interval(self, interval_seconds: float) -> "Timing":
        """Return these times for readings that are so far apart that fewer of them fit in."""
        return msgspec.structs.replace(
            self,
            missing_seconds=max(self.missing_seconds, 3.0 * interval_seconds),
            lost_seconds=max(self.lost_seconds, 4.0 * interval_seconds),
        )


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one board.

    ``saturated`` is just below the control target: a throttled chip that stays there for long is
    as bad as a critical one. ``maximum_plausible`` is where a reading is no longer believed.
    ``clock_evidence`` tells whether a fallen clock counts as throttling.
    """

    warm_celsius: float
    warm_leave_celsius: float
    hot_celsius: float
    hot_leave_celsius: float
    critical_celsius: float
    critical_leave_celsius: float
    emergency_celsius: float
    saturated_celsius: float
    maximum_plausible_celsius: float
    timing: Timing = Timing()
    clock_evidence: bool = True

    def __post_init__(self) -> None:
        """Refuse an order or a hysteresis with which the machine would flap."""
        problems = []
        ascending = ("warm", "hot", "critical", "emergency")
        for lower, upper in itertools.pairwise(ascending):
            if not self._enter(lower) < self._enter(upper):
                problems.append(
                    f"{lower}Celsius ({self._enter(lower):g}) must be below "
                    f"{upper}Celsius ({self._enter(upper):g})"
                )
        for name in ("warm", "hot", "critical"):
            leave = getattr(self, f"{name}_leave_celsius")
            if not self._enter(name) - leave >= MINIMUM_HYSTERESIS_CELSIUS:
                problems.append(
                    f"{name}LeaveCelsius ({leave:g}) must be at least "
                    f"{MINIMUM_HYSTERESIS_CELSIUS:g} below {name}Celsius ({self._enter(name):g})"
                )
        if problems:
            raise ThresholdError("; ".join(problems))

    def _enter(self, name: str) -> float:
        value = getattr(self, f"{name}_celsius")
        return float(value)

    def named(self) -> dict[str, float]:
        """Return the temperatures under the names metrics use for them."""
        return {
            "warm": self.warm_celsius,
            "warm_leave": self.warm_leave_celsius,
            "hot": self.hot_celsius,
            "hot_leave": self.hot_leave_celsius,
            "critical": self.critical_celsius,
            "critical_leave": self.critical_leave_celsius,
            "emergency": self.emergency_celsius,
        }


class Settings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """What a person may set; None means "derive it".

    A temperature that is set moves the ones derived from it: ``warm`` stays 8 °C below ``hot``,
    leaving stays 4, 10 and 13 °C below entering. Contradictions are found when the settings are
    read, against every preset. ``clock_evidence`` is switched off where the plugin itself lowers
    the clock of a warm device: that is mitigation, no sign of heat.
    """

    preset: Preset = "auto"
    warm_celsius: float | None = None
    warm_leave_celsius: float | None = None
    hot_celsius: float | None = None
    hot_leave_celsius: float | None = None
    critical_celsius: float | None = None
    critical_leave_celsius: float | None = None
    emergency_celsius: float | None = None
    timing: Timing = Timing()
    clock_evidence: bool = True

    def __post_init__(self) -> None:
        """Refuse settings that fit no board they are meant for."""
        names = [self.preset] if self.preset in PRESETS else sorted(PRESETS)
        for name in names:
            self._derive(PRESETS[name], self.timing)

    def resolve(
        self, *, model: str | None = None, trips: Iterable[Trip] = (), simulated: bool = False
    ) -> Thresholds:
        """Return the limits for a board with these trip points.

        With a named preset the trip points are ignored. Where the settings contradict the trip
        points of a board, the usual ones of its chip are taken, so this never raises for settings
        that were accepted.
        """
        timing = self.timing.for_board(simulated=simulated)
        if self.preset != "auto":
            return self._derive(PRESETS[self.preset], timing)
        name = _preset_of(model)
        usual = PRESETS[name]
        if name == _ASCEND:
            # The zones of the machine around an accelerator are not the accelerator's.
            return self._derive(usual, timing)
        try:
            return self._derive(anchors_of(trips, usual), timing)
        except ThresholdError:
            return self._derive(usual, timing)

    def _derive(self, anchors: Anchors, timing: Timing) -> Thresholds:
        critical = _given(
            self.critical_celsius,
            min(
                _HIGHEST_CRITICAL_CELSIUS,
                anchors.target_celsius + _CRITICAL_ABOVE_TARGET_CELSIUS,
                anchors.shutdown_celsius - _CRITICAL_BELOW_SHUTDOWN_CELSIUS,
            ),
        )
        hot = _given(self.hot_celsius, critical - _HOT_BELOW_CRITICAL_CELSIUS)
        warm = _given(self.warm_celsius, hot - _WARM_BELOW_HOT_CELSIUS)
        return Thresholds(
            warm_celsius=warm,
            warm_leave_celsius=_given(self.warm_leave_celsius, warm - _WARM_HYSTERESIS_CELSIUS),
            hot_celsius=hot,
            hot_leave_celsius=_given(self.hot_leave_celsius, hot - _HOT_HYSTERESIS_CELSIUS),
            critical_celsius=critical,
            critical_leave_celsius=_given(
                self.critical_leave_celsius, critical - _CRITICAL_HYSTERESIS_CELSIUS
            ),
            emergency_celsius=_given(
                self.emergency_celsius, critical + _EMERGENCY_ABOVE_CRITICAL_CELSIUS
            ),
            saturated_celsius=critical - _SATURATED_BELOW_CRITICAL_CELSIUS,
            maximum_plausible_celsius=anchors.shutdown_celsius + _PLAUSIBLE_ABOVE_SHUTDOWN_CELSIUS,
            timing=timing,
            clock_evidence=self.clock_evidence,
        )


def anchors_of(trips: Iterable[Trip], usual: Anchors) -> Anchors:
    """Return control target and shutdown trip of a board, ``usual`` ones where it names none.

    A vendor kernel has a switch-on and a target trip in one zone, both passive: the highest
    passive trip of a zone is its target, and the lowest target of all zones acts first. Zones that
    are not the chip's, and fans (active trips), do not count.
    """
    targets: dict[str, float] = {}
    shutdowns: list[float] = []
    for trip in trips:
        if not trip.zone.startswith(_CHIP_ZONES):
            continue
        if trip.kind == "passive" and _within(trip.celsius, _TARGET_RANGE_CELSIUS):
            targets[trip.zone] = max(trip.celsius, targets.get(trip.zone, trip.celsius))
        elif trip.kind == "critical" and _within(trip.celsius, _SHUTDOWN_RANGE_CELSIUS):
            shutdowns.append(trip.celsius)
    return Anchors(
        target_celsius=min(targets.values(), default=usual.target_celsius),
        shutdown_celsius=min(shutdowns, default=usual.shutdown_celsius),
    )


def _preset_of(model: str | None) -> str:
    if model is not None and model.startswith("rk356"):
        return "rk356x"
    if model is not None and model.startswith(_ASCEND):
        return _ASCEND
    return model if model in PRESETS else "rk3588"


def _within(value: float, bounds: tuple[float, float]) -> bool:
    return bounds[0] <= value <= bounds[1]


def _given(value: float | None, derived: float) -> float:
    return derived if value is None else value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)

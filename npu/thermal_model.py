"""How a board without a fan heats up under NPU load: a pure model for simulated boards.

The rise above ambient has three parts: a constant one of the idle board, a fast one (the chip, time
constant about 10 s) and a slow one (heat sink and case, minutes). The kernel's system monitor
lowers the clock above 85 degrees until 80, and with it the heat; so does who lowers its limit.
``speed`` makes thermal time pass faster and changes nothing else: the trajectory over thermal time
is the same.
"""

import math
from dataclasses import dataclass, replace

from npu.catalogue import Heating

#: Thermal time of one integration step; the governor is looked at this often.
_STEP_SECONDS = 1.0

# The sensors of these chips count in steps of 12/13 degree, and 37.000 is one of their values.
_SENSOR_STEPS_PER_12_CELSIUS = 13
_SENSOR_ORIGIN_MILLICELSIUS = 37_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ThermalState:
    """Rises of the two parts above the idle board, and whether the kernel caps the clock."""

    fast_celsius: float = 0.0
    slow_celsius: float = 0.0
    capped: bool = False


def temperature_celsius(heating: Heating, state: ThermalState, ambient_celsius: float) -> float:
    """Return the temperature at the NPU."""
    return ambient_celsius + heating.idle_celsius + state.fast_celsius + state.slow_celsius


def step(
    heating: Heating,
    state: ThermalState,
    *,
    dt_seconds: float,
    load_ratio: float,
    ambient_celsius: float,
    speed: float = 1.0,
    clock_ratio: float = 1.0,
) -> ThermalState:
    """Return the state after ``dt_seconds`` at a load (0 to 1, mean of the cores).

    ``clock_ratio`` is the highest clock that somebody allows, relative to the full one.
    Each part approaches its value for this load exponentially, so that the result does not depend
    on how the time is divided, except for the moment at which the governor acts.
    """
    left = dt_seconds * speed
    while left > 0:
        taken = min(_STEP_SECONDS, left)
        left -= taken
        power = load_ratio * _power_ratio(heating, clock_ratio, capped=state.capped)
        state = governed(
            heating,
            ThermalState(
                fast_celsius=_approach(
                    state.fast_celsius, heating.fast_celsius * power, taken / heating.fast_seconds
                ),
                slow_celsius=_approach(
                    state.slow_celsius, heating.slow_celsius * power, taken / heating.slow_seconds
                ),
                capped=state.capped,
            ),
            ambient_celsius=ambient_celsius,
        )
    return state


def governed(
    heating: Heating,
    state: ThermalState,
    *,
    ambient_celsius: float,
    measured_celsius: float | None = None,
) -> ThermalState:
    """Return the state with the kernel's cap as the temperature demands it.

    ``measured_celsius`` replaces the model's temperature, for a test that dictates one.
    """
    if heating.governor is None:
        return state
    celsius = (
        temperature_celsius(heating, state, ambient_celsius)
        if measured_celsius is None
        else measured_celsius
    )
    if celsius >= heating.governor.cap_celsius:
        return replace(state, capped=True)
    if celsius <= heating.governor.release_celsius:
        return replace(state, capped=False)
    return state


def steady_state(heating: Heating, load_ratio: float) -> ThermalState:
    """Return where an ungoverned board ends up at a constant load."""
    return ThermalState(
        fast_celsius=heating.fast_celsius * load_ratio,
        slow_celsius=heating.slow_celsius * load_ratio,
    )


def sensor_millicelsius(celsius: float) -> int:
    """Return what the chip's sensor shows: the next lower of its values, 0.923 degrees apart."""
    above = celsius * 1000 - _SENSOR_ORIGIN_MILLICELSIUS
    count = math.floor(above * _SENSOR_STEPS_PER_12_CELSIUS / 12_000)
    return _SENSOR_ORIGIN_MILLICELSIUS + math.floor(count * 12_000 / _SENSOR_STEPS_PER_12_CELSIUS)


def _approach(value: float, target: float, time_constants: float) -> float:
    return target + (value - target) * math.exp(-time_constants)


def _power_ratio(heating: Heating, clock_ratio: float, *, capped: bool) -> float:
    """Return the heat of a full load; power goes with the square of the clock."""
    allowed = clock_ratio**2
    if heating.governor is None or not capped:
        return allowed
    return min(allowed, heating.governor.capped_power_ratio)

"""What is simulated: rooms, boards, Pods and policies."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from ci.closedloop.board import SimulatedBoard, Tally
from ci.closedloop.policies import KernelOnly, Platform, Policy, Taints
from npu import catalogue
from npu.catalogue import Heating
from npu.thresholds import Settings
from plugin.config import HeatConfig
from thermal.config import Config
from thermal.eviction import Eviction

_HOUR = 3600.0
#: Rise of the air around a board whose fan stands still.
_FAN_CELSIUS = 12.0
_FAN_SECONDS = 120.0
#: As `values-fanless.yaml`: the clock in steps, and eviction at critical.
CLAMPED = HeatConfig(clamp_frequency=True)
FANLESS = Config(
    thresholds=Settings(clock_evidence=False),
    eviction=Eviction(states=("critical", "emergency")),
)


def _failing_fan(now: float) -> float:
    """Every other hour the fan stands still: the air at the board warms up within two minutes."""
    passed, hour = now % _HOUR, int(now // _HOUR)
    share = min(1.0, passed / _FAN_SECONDS)
    return 30.0 + _FAN_CELSIUS * (share if hour % 2 else (1.0 - share) * (hour > 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The air around the boards: °C at a time in seconds."""

    title: str
    celsius: Callable[[float], float]


ROOMS = {
    "25": Room(title="25 °C", celsius=lambda _now: 25.0),
    "32": Room(title="32 °C", celsius=lambda _now: 32.0),
    "38": Room(title="38 °C", celsius=lambda _now: 38.0),
    "fan": Room(
        title="30 °C, the fan fails every other hour",
        celsius=_failing_fan,
    ),
}
#: Mean life of a Pod in seconds.
PODS = {"short": 240.0, "hour": 3600.0, "endless": math.inf}
BOARDS = ("rk3588", "ungoverned")
POLICIES: dict[str, Callable[[], Policy]] = {
    "kernel only": KernelOnly,
    "taint at 80 °C": lambda: Taints(
        close_celsius=80.0, evict_celsius=None, hysteresis_celsius=0.0, hold_seconds=0.0
    ),
    "taints, 2 °C": lambda: Taints(
        close_celsius=78.0, evict_celsius=85.0, hysteresis_celsius=2.0, hold_seconds=0.0
    ),
    "taints, 8 °C and 180 s": lambda: Taints(
        close_celsius=78.0, evict_celsius=85.0, hysteresis_celsius=8.0, hold_seconds=180.0
    ),
    "default": lambda: Platform(Config()),
    "fanless values": lambda: Platform(FANLESS, CLAMPED),
}
#: The same where the boards are the whole cluster.
ROOM_POLICIES: dict[str, Callable[[], Policy]] = {
    "default": lambda: Platform(Config(), fleet_rules=True),
    "fanless values": lambda: Platform(FANLESS, CLAMPED, fleet_rules=True),
}


def heating_of(board: str) -> Heating:
    """Return the thermal model of a board; "ungoverned" is one whose kernel does nothing.

    A mainline kernel gives the zone of the NPU a critical trip and no cooling device.
    """
    simulation = catalogue.load("rk3588").simulation
    if simulation is None:
        raise ValueError("board rk3588 has no thermal model")
    if board == "ungoverned":
        return msgspec.structs.replace(simulation.heating, governor=None)
    return simulation.heating


def run(
    policy: Policy,
    *,
    room: Room,
    pod_seconds: float,
    slots: int,
    hours: float,
    board: str = "rk3588",
    seed: int = 1,
    boards: int = 1,
) -> Tally:
    """Return what happened on the boards together."""
    heating = heating_of(board)
    simulated = []
    for index in range(boards):
        chance = random.Random(f"{seed} {index}")  # noqa: S311 (repeatable, no secret)
        simulated.append(
            SimulatedBoard(
                name=f"board{index}",
                heating=heating,
                slots=slots,
                ambient=room.celsius,
                pod_seconds=_lives(chance, pod_seconds),
                chance=chance,
            )
        )
    for second in range(1, int(hours * _HOUR) + 1):
        now = float(second)
        for one in simulated:
            one.advance(now)
        policy.turn(simulated, now)
    total = simulated[0].tally
    for one in simulated[1:]:
        total = total.merged(one.tally)
    return total


def _lives(chance: random.Random, mean_seconds: float) -> Callable[[], float]:
    if math.isinf(mean_seconds):
        return lambda: math.inf
    return lambda: chance.expovariate(1.0 / mean_seconds)

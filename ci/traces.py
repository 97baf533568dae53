"""Writes the example traces from the board model: ``python -m ci.traces [--check]``.

They are what exporters of simulated boards would have recorded: Pods come and go at random (from a
fixed seed), boards heat up, their kernels lower the clock.
"""

import argparse
import gzip
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from npu import catalogue
from npu.thermal_model import ThermalState, sensor_millicelsius, step, temperature_celsius

DIRECTORY = Path(__file__).parent.parent / "docs" / "examples" / "traces"

_INTERVAL_SECONDS = 10
_FULL_HERTZ = 1_000_000_000
_HOUR = 3600


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A recorded cluster. ``ambient`` is °C at a time in seconds; ``boards`` are by node."""

    about: str
    boards: dict[str, str]
    hours: float
    pod_seconds: float
    busy_share: float
    ambient: Callable[[float], float]
    lost: tuple[tuple[str, float, float], ...] = ()


SCENARIOS = {
    "warm-room": Scenario(
        about="short Pods at 38 °C without a fan",
        boards={"rk3588-a": "rk3588", "rk3588-b": "rk3588", "rk3576-a": "rk3576"},
        hours=4,
        pod_seconds=240,
        busy_share=0.6,
        ambient=lambda _at: 38.0,
    ),
    "fan-fails": Scenario(
        about="a fan that stops every other hour, and an exporter that is away while it is hot",
        boards={"rk3588-a": "rk3588", "rk3568-a": "rk3568"},
        hours=4,
        pod_seconds=900,
        busy_share=0.7,
        ambient=lambda at: 30.0 + 14.0 * (at // _HOUR % 2),
        lost=(("rk3588-a", 1.6 * _HOUR, 1.65 * _HOUR),),
    ),
    "hot-room": Scenario(
        about="ten boards in a room whose cooling fails after an hour",
        boards={f"rk3588-{index}": "rk3588" for index in range(10)},
        hours=2,
        pod_seconds=600,
        busy_share=0.5,
        ambient=lambda at: 28.0 + 16.0 * min(1.0, max(0.0, (at - _HOUR) / 600)),
    ),
}


def trace(name: str) -> str:
    """Return the CSV of a scenario."""
    scenario = SCENARIOS[name]
    lines = ["seconds,node,device,celsius,busy,clock_hz"]
    for node, board in scenario.boards.items():
        lines += _node(scenario, node, board, random.Random(f"{name} {node}"))  # noqa: S311
    head, *rows = lines
    rows.sort(key=lambda row: (int(row.split(",", 1)[0]), row))
    return "\n".join([head, *rows, ""])


def _node(scenario: Scenario, node: str, board: str, chance: random.Random) -> list[str]:
    simulation = catalogue.load(board).simulation
    if simulation is None:
        raise ValueError(f"board {board} has no thermal model")
    heating, state = simulation.heating, ThermalState()
    working, left = False, 0.0
    rows = []
    for at in range(0, int(scenario.hours * _HOUR) + 1, _INTERVAL_SECONDS):
        if left <= 0:
            working = chance.random() < scenario.busy_share
            left = chance.expovariate(1 / scenario.pod_seconds)
        left -= _INTERVAL_SECONDS
        load = 0.95 if working else 0.0
        ambient = scenario.ambient(at)
        state = step(
            heating, state, dt_seconds=_INTERVAL_SECONDS, load_ratio=load, ambient_celsius=ambient
        )
        if any(n == node and begin <= at < end for n, begin, end in scenario.lost):
            continue
        measured = temperature_celsius(heating, state, ambient) + chance.gauss(0.0, 0.3)
        capped = heating.governor is not None and state.capped
        clock = heating.governor.capped_hertz if capped and heating.governor else _FULL_HERTZ
        celsius = sensor_millicelsius(measured) / 1000
        rows.append(f"{at},{node},npu0,{celsius:.1f},{load:g},{clock}")
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Write the traces, or with ``--check`` return 1 where one differs."""
    parser = argparse.ArgumentParser(prog="python -m ci.traces", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail on a difference, write nothing")
    check = parser.parse_args(arguments).check
    for name in SCENARIOS:
        path, fresh = DIRECTORY / f"{name}.csv.gz", trace(name).encode()
        # Compressed bytes depend on the version of zlib, what is in them does not.
        if path.exists() and gzip.decompress(path.read_bytes()) == fresh:
            continue
        if check:
            print(f"{path} is not what the model says", file=sys.stderr)
            return 1
        path.write_bytes(gzip.compress(fresh, mtime=0))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A hot day in a room of fan-less boards is one message, not one per board and hour."""

import math
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import pytest
import yaml

from ci import chart, tools
from ci.chart import Json
from npu import catalogue, heat, thermal_model
from npu.heat import OVERHEATED, Heat, Machine, Reading
from npu.thermal_model import ThermalState
from npu.thresholds import Settings

BOARDS = 12
#: From six in the morning to ten in the evening.
HOURS = 16
STEP_SECONDS = 20
JOB_SECONDS = 40 * 60
#: Jobs that want a board at the same time.
DEMAND = 11
LIMITS = Settings().resolve(model="rk3588")
SIMULATION = catalogue.load("rk3588").simulation
#: Alertmanager groups by kind of alert and cluster, see docs/examples/alertmanager.yaml.
NOTIFIED = 'ALERTS{alertstate="firing",severity=~"warning|critical"}'


@dataclass(slots=True)
class Board:
    """A board in its place: some get warmer air than others."""

    warmer_celsius: float
    thermal: ThermalState = field(default_factory=ThermalState)
    machine: Machine = field(default_factory=lambda: heat.start(0.0))
    job_until: float = -1.0
    transitions: int = 0
    celsius: list[float] = field(default_factory=list)
    states: list[Heat] = field(default_factory=list)
    changes: list[int] = field(default_factory=list)

    def step(self, now: float, ambient: float) -> None:
        """Compute for a while, get warm, and be judged."""
        assert SIMULATION is not None
        ambient += self.warmer_celsius
        self.thermal = thermal_model.step(
            SIMULATION.heating,
            self.thermal,
            dt_seconds=STEP_SECONDS,
            load_ratio=0.9 if now < self.job_until else 0.0,
            ambient_celsius=ambient,
        )
        celsius = thermal_model.temperature_celsius(SIMULATION.heating, self.thermal, ambient)
        self.machine, change = heat.step(self.machine, Reading(celsius=celsius), now, LIMITS)
        self.transitions += change is not None
        if now % 60 == 0:
            self.celsius.append(round(celsius, 1))
            self.states.append(self.machine.state)
            self.changes.append(self.transitions)


def ambient_celsius(hour: float, highest: float) -> float:
    """Return the air of the room: 26 °C at six in the morning, ``highest`` in the afternoon."""
    return 26 + (highest - 26) * max(0.0, math.sin(math.pi * (hour - 6) / 18))


def day(highest: float) -> list[Board]:
    """Simulate: a job goes to an open board that has none, as the scheduler would place it."""
    boards = [Board(warmer_celsius=number / 3) for number in range(BOARDS)]
    for step in range(1, HOURS * 3600 // STEP_SECONDS + 1):
        now = float(step * STEP_SECONDS)
        running = sum(now < board.job_until for board in boards)
        for number, board in enumerate(boards):
            free = now >= board.job_until and board.machine.state not in OVERHEATED
            if free and running < DEMAND:
                board.job_until = now + JOB_SECONDS + number * 60
                running += 1
            board.step(now, ambient_celsius(6 + now / 3600, highest))
    return boards


def series(boards: list[Board]) -> Iterator[tuple[str, str]]:
    """Yield what exporters and the guard export about these boards, a sample a minute."""
    for number, board in enumerate(boards, 1):
        node = f'node="n{number}"'
        yield (
            f'npu_temperature_celsius{{{node},device="npu0",zone="npu-thermal"}}',
            " ".join(map(str, board.celsius)),
        )
        for threshold, value in LIMITS.named().items():
            yield (
                f'npu_thermal_guard_threshold_celsius{{{node},threshold="{threshold}"}}',
                f"{value}x{len(board.states)}",
            )
        for state in sorted(set(board.states)):
            present = [one is state for one in board.states]
            yield (
                f'npu_thermal_guard_node_state{{{node},state="{state}"}}',
                " ".join(
                    f"1x{count - 1}" if here else f"stale _x{count - 1}".removesuffix(" _x0")
                    for here, count in ((key, len(list(run))) for key, run in groupby(present))
                ),
            )
        yield (
            f"npu_thermal_guard_node_transitions_total{{{node}}}",
            " ".join(map(str, board.changes)),
        )
        yield f'up{{job="npu-platform-exporter",{node}}}', f"1x{len(board.states)}"
    yield 'up{job="npu-platform-guard"}', f"1x{HOURS * 60}"
    yield 'up{job="npu-platform-plugin"}', f"1x{HOURS * 60}"


def rules() -> Json:
    """Return all rules, as rendered."""
    text = chart.render(values={"monitoring": {"enabled": True, "skipApiCheck": True}})
    (item,) = [one for one in chart.objects(text) if one["kind"] == "PrometheusRule"]
    spec: Json = item["spec"]
    return spec


@pytest.mark.parametrize(("highest", "messages"), [(30.0, 0), (31.0, 1), (40.0, 1)])
def test_a_summer_day_is_one_message(highest: float, messages: int, tmp_path: Path) -> None:
    """Boards that take turns in being too hot are one notification, also around the limit."""
    boards = day(highest)
    assert any(state in OVERHEATED for board in boards for state in board.states)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules(), allow_unicode=True))
    kinds = f"group by (alertname) ({NOTIFIED})"
    starts = f"count_over_time(({kinds} unless {kinds.replace('})', '} offset 1m)')})[17h:1m])"
    content = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "group_eval_order": ["npu.recording", "npu.alerts"],
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": k, "values": v} for k, v in series(boards)],
                "promql_expr_test": [
                    {
                        "expr": starts,
                        "eval_time": f"{HOURS}h",
                        "exp_samples": [
                            {"labels": '{alertname="NpuManyNodesHot"}', "value": messages}
                        ][:messages],
                    }
                ],
            }
        ],
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(content))
    done = subprocess.run(
        [tools.promtool(), "test", "rules", file],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

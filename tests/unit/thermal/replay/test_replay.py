"""What a replay finds."""

import gzip
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ci.traces import DIRECTORY, SCENARIOS
from npu.heat import Heat
from npu.thresholds import Settings
from thermal.config import Config
from thermal.main import main
from thermal.replay.plot import svg
from thermal.replay.report import report
from thermal.replay.run import Replayed, replay
from thermal.replay.trace import Row, Trace, read

HEATS_AT, COOLS_AT, END = 100, 400, 1400


def recorded(*, gap: range = range(0), nodes: int = 1) -> Trace:
    """Return nodes that are at 84 °C for five minutes, then at 60."""
    rows = [
        Row(float(at), f"n{index}", "npu0", celsius, 0.9 if celsius > 80 else 0.0, 1e9)
        for at in range(0, END, 5)
        for index in range(nodes)
        for celsius in [84.0 if HEATS_AT <= at < COOLS_AT else 65.0]
        if at not in gap
    ]
    return Trace(rows=tuple(rows), interval_seconds=5.0)


def states(replayed: Replayed) -> list[Heat]:
    return [change.target for change in replayed.changes]


def test_one_cycle_of_heat() -> None:
    """Warm, hot after the debounce, recovering after the hold; closed in between."""
    trace = recorded()

    replayed = replay(trace, Config())

    assert states(replayed) == [Heat.COOL, Heat.WARM, Heat.HOT, Heat.RECOVERING, Heat.COOL]
    (span,) = replayed.spans
    assert span.effect == "NoSchedule"
    assert HEATS_AT + 15 <= span.begin <= HEATS_AT + 45
    assert span.end - span.begin >= 180
    assert COOLS_AT + 60 <= span.end <= COOLS_AT + 120
    found = report(trace, replayed)
    assert (found["flips"], found["evictions"]) == (2, 0)
    assert found["secondsAbove"] == {"warm": 300, "hot": 300, "critical": 0, "emergency": 0}


def test_settings_matter() -> None:
    """A higher limit never closes; the same trace, the other result."""
    trace = recorded()
    lenient = Config(thresholds=Settings(hot_celsius=86.0, critical_celsius=90.0))

    assert replay(trace, lenient).spans == []


def test_a_gap_in_the_record_is_lost_data() -> None:
    """An exporter that was away leaves the node unknown, and a hot one closed."""
    replayed = replay(recorded(gap=range(300, 400)), Config())

    assert Heat.UNKNOWN in states(replayed)
    assert len(replayed.spans) == 1


def test_the_budget_is_part_of_it() -> None:
    """Of five nodes hot at once one is closed, the others are avoided."""
    replayed = replay(recorded(nodes=5), Config())

    assert [span.effect for span in replayed.spans].count("NoSchedule") == 1
    assert {span.effect for span in replayed.spans} == {"NoSchedule", "PreferNoSchedule"}
    assert replayed.held_back_seconds["budget"] > 0


def test_work_that_began_while_closed_is_kept_away() -> None:
    """A Pod that was there goes on; one that would have come after an idle reading counts."""
    rows = [
        row if row.seconds not in range(405, 450) else row._replace(busy_ratio=1.0)
        for row in recorded().rows
    ]
    rows = [
        row if row.seconds < HEATS_AT or row.clock_hertz is None else row._replace(clock_hertz=5e8)
        for row in rows
    ]
    trace = Trace(rows=tuple(rows), interval_seconds=5.0)

    found = report(trace, replay(trace, Config()))

    busy = 300 * 0.9 + 45
    assert found["throughputLost"] == {
        "closed": pytest.approx(45 / busy, abs=1e-3),
        "throttled": pytest.approx(0.5, abs=1e-3),
    }


def test_without_load_nothing_is_claimed() -> None:
    """Loss is not known where the record has no busy column."""
    rows = tuple(row._replace(busy_ratio=None) for row in recorded().rows)
    trace = Trace(rows=rows, interval_seconds=5.0)

    found = report(trace, replay(trace, Config()))

    assert found["throughputLost"] == {"closed": None, "throttled": None}


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_examples_tell_something(name: str) -> None:
    """Each trace has heat, and the guard closes and opens nodes in it."""
    trace = read(DIRECTORY / f"{name}.csv.gz")

    replayed = replay(trace, Config())

    assert {Heat.HOT, Heat.RECOVERING} <= set(states(replayed))
    assert any(span.effect == "NoSchedule" for span in replayed.spans)


def test_the_picture_is_well_formed() -> None:
    """One curve per node and one band per span; names are escaped."""
    trace = recorded()
    rows = tuple(row._replace(node="<n&>") for row in trace.rows)
    renamed = Trace(rows=rows, interval_seconds=5.0)

    text = svg(renamed, {"default": replay(renamed, Config())})

    root = ET.fromstring(text)  # noqa: S314 (our own)
    assert len(root.findall(".//{*}polyline")) == 1
    assert any(item.text == "<n&>" for item in root.iter())


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Table and JSON name both settings; a mistake is one line and code 2."""
    trace = tmp_path / "t.csv.gz"
    lines = ["seconds,node,device,celsius,busy,clock_hz"]
    lines += [",".join(str(value) for value in row) for row in recorded().rows]
    trace.write_bytes(gzip.compress("\n".join(lines).encode()))
    other = tmp_path / "eager.yaml"
    other.write_text("thresholds: {hotCelsius: 75}")
    picture = tmp_path / "p.svg"

    arguments = ["replay", str(trace), f"--compare={other}"]
    assert main([*arguments, f"--plot={picture}"]) == 0
    assert "eager" in capsys.readouterr().out
    assert "<svg" in picture.read_text()
    assert main([*arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed) == ["default", "eager"]
    assert printed["default"]["flips"] == 2

    other.write_text("thresholds: {warmCelsius: 99}")
    assert main(arguments) == 2
    assert "warmCelsius" in capsys.readouterr().err

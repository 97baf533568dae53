"""Reading recorded temperatures."""

import gzip
import json
from pathlib import Path

import pytest

from thermal.replay.trace import Row, TraceError, parse, read

CSV = """seconds,node,device,celsius,busy,clock_hz
10,n1,npu0,46.0,0.5,1000000000
0,n1,npu0,45.0,,
20,n1,npu0,,,
"""


def test_rows_are_ordered_and_gaps_are_kept() -> None:
    """An empty temperature is a failed reading, not an absent one."""
    trace = parse(CSV)

    assert trace.rows[0] == Row(0.0, "n1", "npu0", 45.0)
    assert trace.rows[1] == Row(10.0, "n1", "npu0", 46.0, 0.5, 1e9)
    assert trace.rows[2].celsius is None
    assert (trace.interval_seconds, trace.seconds, trace.nodes) == (10.0, 20.0, ("n1",))


def test_compressed_traces_are_read(tmp_path: Path) -> None:
    """Whatever the file is called."""
    (tmp_path / "t").write_bytes(gzip.compress(CSV.encode()))

    assert read(tmp_path / "t") == parse(CSV)


def test_a_prometheus_answer_is_read() -> None:
    """Series of one device are put together; NaN is no reading."""

    def series(name: str, values: list[list[object]]) -> dict[str, object]:
        labels = {"__name__": name, "node": "n1", "device": "npu0"}
        return {"metric": labels, "values": values}

    answer = {
        "data": {
            "result": [
                series("npu_temperature_celsius", [[0, "45"], [15, "NaN"], [30, "47"]]),
                series("npu_frequency_hertz", [[0, "1e9"]]),
                series("something_else", [[0, "1"]]),
            ]
        }
    }

    assert parse(json.dumps(answer)).rows == (
        Row(0.0, "n1", "npu0", 45.0, None, 1e9),
        Row(30.0, "n1", "npu0", 47.0),
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "lacks seconds"),
        ("seconds,node,device,celsius\n", "no readings"),
        ("seconds,node,device\n0,n,npu0\n", "lacks celsius"),
        ("seconds,node,device,celsius,power\n", "unknown column 'power'"),
        ("seconds,node,device,celsius\n0,n1,npu0\n", "line 2: 3 values"),
        ("seconds,node,device,celsius\n0,n1,npu0,warm\n", "line 2: celsius: 'warm'"),
        ("seconds,node,device,celsius\n,n1,npu0,4\n", "line 2: seconds"),
        ("seconds,node,device,celsius\n0,,npu0,4\n", "line 2: node"),
        ("seconds,node,device,celsius\n0,n1,../npu,4\n", "line 2: device"),
        ("{}", "Prometheus"),
        ('{"data": {"result": [{"metric": {}, "values": [[0, "1"]]}]}}', "label node"),
    ],
)
def test_a_mistake_is_named(text: str, named: str) -> None:
    """One line with place and fault."""
    with pytest.raises(TraceError, match=named):
        parse(text, source="t.csv")


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    """No traceback for a wrong path or a broken archive."""
    (tmp_path / "broken.gz").write_bytes(gzip.compress(CSV.encode())[:-9])

    for name in ("missing.csv", "broken.gz"):
        with pytest.raises(TraceError, match=name):
            read(tmp_path / name)

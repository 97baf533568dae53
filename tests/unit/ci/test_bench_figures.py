"""Figures and gates of the benchmark."""

import pytest

from ci.bench.figures import Figure, Gate, Samples, figures, percentile, pod_figures, table


def samples(milliseconds: float) -> Samples:
    nanoseconds = [round(milliseconds * 1e6)] * 10
    return Samples(
        allocate=nanoseconds,
        start_to_registered=nanoseconds,
        start_to_list=nanoseconds,
        socket_to_list=nanoseconds,
        resident=40 << 20,
        idle_ratio=0.001,
    )


@pytest.mark.parametrize(
    ("ours", "peer", "holds"),
    [(1.9, 0.7, True), (1.9, 0.6, False), (2.1, 1.0, False), (1.9, None, True)],
)
def test_both_parts_of_a_gate_must_hold(ours: float, peer: float | None, holds: bool) -> None:  # noqa: FBT001
    """A gate is an absolute limit and a multiple of the peer's figure."""
    assert Gate(limit=2.0, ratio=3.0).holds(ours, peer) is holds


def test_percentile_is_one_of_the_values() -> None:
    """Of a hundred values the 99th percentile is the largest, half are not above the median."""
    values = list(range(100))

    assert percentile(values, 0.99) == 99
    assert percentile(values, 0.5) == 50
    assert percentile(values, 1.0) == 99


def test_every_gate_belongs_to_a_figure() -> None:
    """Memory is MiB, CPU percent, times milliseconds; the slow plugin misses its gate."""
    lines = {line.name: line for line in figures(samples(2.5), samples(1.0))}

    assert lines["Allocate p99"].ours == 2.5
    assert lines["Allocate p99"].verdict == "missed"
    assert lines["kubelet.sock to list, worst"].verdict == "met"
    assert lines["resident memory"].ours == 40
    assert lines["idle CPU"].ours == pytest.approx(0.1)
    assert sum(line.gate is not None for line in lines.values()) == 4


def test_table_names_both_and_says_what_is_missed() -> None:
    """One line per figure, with the ratio."""
    line = Figure(name="Allocate p99", unit="ms", ours=3.0, peer=2.0, gate=Gate(limit=2.0))

    text = table([line], ("ours", "theirs"))

    assert "ours" in text.splitlines()[0]
    assert text.splitlines()[1].split() == [
        *("Allocate", "p99", "3.000", "2.000", "1.50", "ms", "<=", "2", "missed")
    ]


def test_starts_of_pods_are_compared_in_pairs() -> None:
    """What a device adds is the median of differences, not of medians."""
    without = [1.0, 2.0, 3.0]
    ours = [1.1, 2.1, 3.1]
    peer = [1.0, 2.05, 3.2]

    lines = {line.name: line for line in pod_figures(ours, peer, without)}

    start = lines["Pod start, median"]
    assert start.ours == pytest.approx(2100.0)
    assert start.peer == pytest.approx(2050.0)
    assert start.verdict == "missed"
    assert lines["Pod start, p90"].ours == pytest.approx(3100.0)
    assert lines["Pod start without device, median"].ours == pytest.approx(2000.0)
    added = lines["added by the device, median of pairs"]
    assert added.ours == pytest.approx(100.0)
    assert added.peer == pytest.approx(50.0)

"""The last minutes: means over the steps, gaps, bounds."""

from exporter.charts import HEIGHT, WIDTH, line
from exporter.history import PERIOD_SECONDS, POINTS, History
from npu.errors import TransientError
from npu.model import ThermalZone
from tests.unit.exporter.fakes import Parts, loads, npu, watch

ZONE = ThermalZone(index=0, type="npu-thermal")


def test_points_are_means_of_what_was_sampled() -> None:
    """Five seconds, two of them with one of two cores busy, are a fifth; no sample is a gap."""
    parts = Parts(watch(npu(), zones=[ZONE]))
    celsius: list[int | Exception] = [40_000, TransientError("temp", 11), 50_000]

    def read(_: ThermalZone) -> int:
        value = celsius.pop(0)
        if isinstance(value, Exception):
            raise value
        return value

    history = History(parts.board, parts.account, read, monotonic=parts.clock)
    parts.load = loads(0.0, 0.0)
    parts.second()
    history.step()
    for second in range(5):
        parts.load = loads(1.0 if second < 2 else 0.0, 0.0)
        parts.second()
    history.step()
    parts.clock.now += PERIOD_SECONDS
    history.step()

    points = history.points("npu0")
    assert [point.load for point in points] == [None, 0.2, None]
    assert [point.celsius for point in points] == [40.0, None, 50.0]


def test_memory_is_bounded_and_lost_devices_are_forgotten() -> None:
    """A year of steps is ten minutes of points."""
    parts = Parts(watch(npu(), zones=[ZONE]))
    history = History(parts.board, parts.account, lambda _: 40_000, monotonic=parts.clock)
    for _ in range(POINTS + 10):
        history.step()
    assert len(history.points("npu0")) == POINTS
    parts.board.current = watch().current
    history.step()
    assert history.points("npu0") == ()


def test_line_spans_the_drawing() -> None:
    """Now is the right edge, the scale ends at top and bottom, long gaps are not bridged."""
    assert (
        line([(0.0, 0.0), (5.0, 1.0)], 5.0, 0, 1)
        == f"M{WIDTH - 5.0:.1f} {HEIGHT:.1f}h0L{WIDTH:.1f} 0.0"
    )
    assert line([(0.0, 0.0), (60.0, 1.0)], 60.0, 0, 1).count("M") == 2
    assert line([(0.0, 0.5)], 5000.0, 0, 1) == ""

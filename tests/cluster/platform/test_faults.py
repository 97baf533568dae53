"""Bad files of a board: a clear state, nothing crashes, no number is invented."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ci.command import CommandError
from ci.demo.story import CHART, NAMESPACE
from ci.kube import until
from tests.cluster.platform.installed import Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

LOAD = "sys/kernel/debug/rknpu/load"
LOADED = (0.5, 0.5, 0.5)


@contextmanager
def _frozen(platform: Platform, node: str) -> Iterator[Path]:
    """Stop the simulator from writing to the board of ``node``; gives the board's directory."""
    platform.hold(node, 45.0, LOADED)
    until(
        lambda: platform.load(node),
        lambda seen: set(seen.values()) == {0.5},
        seconds=40,
        what=f"half load on {node}",
    )
    platform.control(node, frozen=True, celsius=45.0, load=LOADED)
    # One period of the simulator and one more: nothing of it is under way any more.
    time.sleep(2)
    try:
        yield platform.cluster.node_board(node)
    finally:
        platform.release(node)
        until(
            lambda: platform.metrics(node).get("npu_up", {}),
            lambda seen: set(seen.values()) == {1.0},
            seconds=40,
            what=f"load of {node} is read again",
        )


def _break(file: Path, fault: str) -> None:
    if fault == "missing":
        file.unlink()
        return
    contents = {
        "empty": b"",
        "truncated": b"NPU load:  Core0:  5",
        "not-utf8": b"NPU load:  Core0: \xff\xfe%, Core1: 1%,\n",
    }
    fresh = file.with_suffix(".part")
    fresh.write_bytes(contents.get(fault, b"NPU load:  Core0: 99%,\n"))
    if fault == "unreadable":
        fresh.chmod(0o000)
    fresh.rename(file)


@pytest.mark.parametrize("fault", ["missing", "unreadable", "empty", "truncated", "not-utf8"])
def test_unreadable_load_is_absent_and_said(boards: Platform, fault: str) -> None:
    """The counters stand still, the collector says so, temperature stays, nothing restarts."""
    node = boards.boards[1]
    with _frozen(boards, node) as board:
        _break(board / LOAD, fault)
        metrics = until(
            lambda: boards.metrics(node),
            lambda seen: set(seen["npu_up"].values()) == {0.0},
            seconds=30,
            what=f"npu_up 0 on {node}",
        )

        assert metrics["npu_scrape_collector_success"]['{"collector": "load"}'] == 0.0
        assert boards.load(node) == {}, "nothing may be counted that was not read"
        assert "npu_temperature_celsius" in metrics
    pod = boards.component("exporter", node)
    assert [s["restartCount"] for s in pod["status"]["containerStatuses"]] == [0]


def test_overflowing_load_is_clamped_and_counted(boards: Platform) -> None:
    """Drivers before 0.9 print 429496 %: one core is fully busy and the oddity is counted."""
    node = boards.boards[1]
    with _frozen(boards, node) as board:
        file = board / LOAD
        fresh = file.with_suffix(".part")
        fresh.write_text("NPU load: Core0: 99%, Core1: 99%, Core2: 429496%\n")
        fresh.rename(file)

        until(
            lambda: boards.load(node),
            lambda seen: seen.get("2") == 1.0,
            seconds=30,
            what="clamped load",
        )
        assert boards.value(node, "npu_load_out_of_range_total") not in (None, 0.0)


def test_busy_sensor_is_unknown_not_cool(boards: Platform) -> None:
    """A zone that answers EAGAIN has no temperature; the load is still there."""
    node = boards.boards[1]
    with _frozen(boards, node):
        fifo = boards.zone(node) / "temp"
        fifo.unlink()
        os.mkfifo(fifo)
        # A FIFO held open by a writer that says nothing answers EAGAIN to a non-blocking read.
        holder = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        try:
            metrics = until(
                lambda: boards.metrics(node),
                lambda seen: "npu_temperature_celsius" not in seen,
                seconds=30,
                what=f"no judged temperature on {node}",
            )
            assert set(metrics["npu_up"].values()) == {1.0}
        finally:
            os.close(holder)
            fifo.unlink()


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("plugin.unknownKey=1", "unknownKey"),
        ("simulator.speed=fast", "speed"),
        ("guard.mode=perhaps", "mode"),
        ("thresholds.temperatures.hotCelsius=60,thresholds.temperatures.warmCelsius=70", "warm"),
    ],
)
def test_wrong_values_are_refused_with_their_key(
    platform: Platform, setting: str, key: str
) -> None:
    """A typing mistake stops helm before anything changes."""
    with pytest.raises(CommandError, match=key):
        platform.kube.helm(
            "upgrade", "npu", str(CHART), f"--namespace={NAMESPACE}", f"--set={setting}"
        )

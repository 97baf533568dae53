"""Failures are counted always and logged on change."""

import errno
import logging

import pytest

from exporter.failures import Failures
from npu.errors import ImplausibleError, TransientError

BUSY = TransientError("/sys/class/thermal/thermal_zone0/temp", errno.EAGAIN)


def lines(caplog: pytest.LogCaptureFixture, level: int) -> int:
    return sum(record.levelno == level for record in caplog.records)


def test_a_lasting_failure_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """A hundred failing scrapes are a hundred in the counter and one in the log."""
    caplog.set_level(logging.INFO)
    failures = Failures()
    for _ in range(100):
        failures.report("temperature", [BUSY])
    assert failures.counts()["temperature"] == 100
    assert lines(caplog, logging.WARNING) == 1


def test_recovery_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The end of a failure is one line too."""
    caplog.set_level(logging.INFO)
    failures = Failures()
    failures.report("load", [BUSY], source="npu0")
    failures.report("load", [], source="npu1")
    assert lines(caplog, logging.INFO) == 0
    failures.report("load", [], source="npu0")
    assert lines(caplog, logging.INFO) == 1


def test_flapping_gets_quiet(caplog: pytest.LogCaptureFixture) -> None:
    """A sensor that fails every other time is logged the 1st, 2nd, 4th, 8th … time."""
    failures = Failures()
    for _ in range(100):
        failures.report("temperature", [BUSY])
        failures.report("temperature", [])
    assert lines(caplog, logging.WARNING) == 7


def test_changing_garbage_is_one_failure(caplog: pytest.LogCaptureFixture) -> None:
    """A file whose nonsense differs each time is still the same failure."""
    failures = Failures()
    for number in range(10):
        failures.report("load", [ImplausibleError("/sys/kernel/debug/rknpu/load", number, "load")])
    assert lines(caplog, logging.WARNING) == 1


def test_all_collectors_count_from_zero() -> None:
    """The first failure shows in increase()."""
    assert set(Failures().counts().values()) == {0}

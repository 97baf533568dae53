"""Sampling: gaps stay gaps, one device never stops another, problems have words."""

import errno
import threading

from exporter.accounting import Account
from exporter.failures import Failures
from exporter.sampler import Sampler
from npu.errors import MissingError
from npu.model import CoreLoad, Npu
from tests.unit.exporter.fakes import Clockwork, Parts, loads, npu, watch

GONE = MissingError("/sys/kernel/debug/rknpu/load", errno.ENOENT)


def test_a_failed_read_adds_to_neither_counter() -> None:
    """Three good seconds and two bad ones are three seconds, in both counters."""
    parts = Parts(watch(npu()))
    parts.load = loads(1.0)
    parts.sampler.step()
    for load in (loads(1.0), GONE, GONE, loads(1.0), loads(1.0)):
        parts.load = load
        parts.second()
    core = parts.account.cores("npu0")[0]
    assert (core.busy_seconds, core.sampled_seconds) == (3.0, 3.0)
    assert parts.failures.counts()["load"] == 2


def test_unreadable_load_is_a_problem_with_its_path() -> None:
    """The reason names the device, the file and the errno; it ends with the failure."""
    parts = Parts(watch(npu()))
    assert parts.sampler.problem("npu0") is not None
    parts.second()
    assert parts.sampler.problem("npu0") is None
    parts.load = GONE
    parts.second()
    problem = parts.sampler.problem("npu0")
    assert problem is not None
    assert "npu0" in problem
    assert "/sys/kernel/debug/rknpu/load" in problem
    assert "ENOENT" in problem


def test_an_old_sample_is_a_problem() -> None:
    """A sampler that stopped is noticed though its last sample was good."""
    parts = Parts(watch(npu()))
    parts.second()
    parts.clock.now += 6.0
    assert parts.sampler.problem("npu0") is not None


def test_time_of_the_last_sample_survives_failures_and_loss() -> None:
    """Its age is what alerts, so it stays."""
    parts = Parts(watch(npu()))
    parts.second()
    parts.load = GONE
    parts.second()
    assert parts.sampler.seen()["npu0"].sampled_unix == 1_700_000_000.0


def test_a_hanging_device_does_not_stop_the_others() -> None:
    """One read blocked in the kernel costs its own device's samples only."""
    gate = threading.Event()
    clock = Clockwork()
    account = Account()

    def read(device: Npu) -> tuple[CoreLoad, ...]:
        if device.id == "npu0":
            gate.wait()
        return loads(0.5)

    sampler = Sampler(
        watch(npu("npu0"), npu("npu1")), account, read, dict, Failures(), monotonic=clock
    )
    try:
        for _ in range(3):
            sampler.step()
            clock.now += 1.0
        assert account.cores("npu0") == {}
        assert account.cores("npu1")[0].sampled_seconds == 2.0
        assert "does not return" in str(sampler.problem("npu0"))
    finally:
        gate.set()

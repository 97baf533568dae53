"""Processes are known by their namespaces."""

import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ci.cluster import processes
from ci.cluster.processes import Process


def own() -> Process:
    """Return this very process."""
    return next(process for process in processes.running() if process.pid == os.getpid())


def test_a_process_is_described() -> None:
    """Namespaces, arguments and the number a process has inside are the kernel's."""
    me = own()
    assert me.net_namespace == Path("/proc/self/ns/net").stat().st_ino
    assert me.pid_namespace == Path("/proc/self/ns/pid").stat().st_ino
    assert me.program.startswith("python")


def test_a_foreign_process_with_the_same_number_is_spared() -> None:
    """A number that belongs to a process of another namespace by now gets no signal."""
    child = subprocess.Popen(["sleep", "60"])
    try:
        remembered = replace(own(), pid=child.pid, argv=("kubelet",))
        for stale in (
            replace(remembered, net_namespace=1),
            replace(remembered, pid_namespace=1),
        ):
            processes.send([stale], signal.SIGKILL)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.3)
        processes.send([remembered], signal.SIGKILL)
        assert child.wait(10) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()


def test_a_process_that_has_gone_is_no_error() -> None:
    """Sending to a number that nobody has does nothing."""
    child = subprocess.Popen(["true"])
    child.wait()
    processes.send([replace(own(), pid=child.pid)], signal.SIGKILL)


def test_who_ignores_the_polite_signal_is_killed() -> None:
    """SIGTERM first, SIGKILL after the patience; the end is waited for."""
    script = "trap '' TERM; echo ready; while :; do sleep 60 & wait; done"
    child = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout is not None
    child.stdout.readline()
    began = time.monotonic()
    processes.end(
        lambda process: process.pid == child.pid, patience_seconds=0.3, what="the stubborn child"
    )
    assert time.monotonic() - began >= 0.3
    assert child.wait(10) == -signal.SIGKILL
    os.killpg(child.pid, signal.SIGKILL)
    child.stdout.close()


def test_zombies_count_as_gone() -> None:
    """A process that has ended but is not collected yet is not found."""
    child = subprocess.Popen(["true"])
    try:
        assert processes.wait_until(
            lambda: child.pid not in {process.pid for process in processes.running()}, 10
        )
    finally:
        child.wait()

"""Evidence of a fault takes a device away; only evidence over a while brings it back."""

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu.errors import DeniedError, ImplausibleError, MissingError, NpuError
from npu.host import Host
from npu.model import Clock, CoreLoad, DeviceNode, Inventory, Npu, Refused
from plugin.health import GOOD, Finding, HealthState, absence, advance, probe
from tests.unit.plugin.boards import drm_npu

BAD = Finding(verdict="bad", reason="lost", detail="gone")
UNKNOWN = Finding(verdict="unknown", reason="unmeasured", detail="EAGAIN")
HOLD = 60.0


def after(*findings: tuple[float, Finding]) -> HealthState:
    state: HealthState | None = None
    for now, finding in findings:
        state = advance(state, finding, now=now, recover_after_seconds=HOLD)
    assert state is not None
    return state


def test_new_device_is_healthy_unless_there_is_evidence() -> None:
    """A device that cannot be measured at the start is offered; one that is bad is not."""
    assert after((0, GOOD)).healthy
    assert after((0, UNKNOWN)).healthy
    assert not after((0, BAD)).healthy


def test_unknown_is_not_bad() -> None:
    """A sensor that cannot be read changes nothing but the reason."""
    state = after((0, GOOD), (30, UNKNOWN))

    assert state.healthy
    assert state.reason == "unmeasured"


def test_recovery_takes_the_hold() -> None:
    """Well again is believed after the hold, not before."""
    assert not after((0, BAD), (10, GOOD), (69, GOOD)).healthy
    assert after((0, BAD), (10, GOOD), (69, GOOD)).reason == "recovering"
    assert after((0, BAD), (10, GOOD), (70, GOOD)).healthy


@pytest.mark.parametrize("interruption", [BAD, UNKNOWN])
def test_interrupted_recovery_starts_over(interruption: Finding) -> None:
    """A device that flaps stays away, and silence is no sign of health."""
    assert not after((0, BAD), (10, GOOD), (50, interruption), (60, GOOD), (119, GOOD)).healthy
    assert after((0, BAD), (10, GOOD), (50, interruption), (60, GOOD), (120, GOOD)).healthy


@given(st.lists(st.tuples(st.floats(0.1, 100), st.sampled_from([GOOD, BAD, UNKNOWN]))))
def test_healthy_after_a_fault_means_a_hold_of_good_findings(
    steps: list[tuple[float, Finding]],
) -> None:
    """In every history, a device offered after a fault has looked well for the whole hold."""
    now, state = 0.0, None
    since_bad: float | None = None
    for delay, finding in steps:
        now += delay
        state = advance(state, finding, now=now, recover_after_seconds=HOLD)
        if finding is BAD:
            since_bad = now
            assert not state.healthy
        elif since_bad is not None and state.healthy:
            assert now - since_bad >= HOLD


def test_absence_is_explained_by_the_scan() -> None:
    """The scan knows why: not bound, disabled, unreadable; otherwise the device is lost."""
    npu = drm_npu()
    unbound = Refused(what=npu.unit, why="driver_not_bound", detail="rmmod")
    unreadable = Refused(what="/sys/bus/platform/drivers/RKNPU", why="unreadable", detail="EIO")

    assert absence(npu, [unbound]).reason == "driver_not_bound"
    assert absence(npu, [unreadable]).verdict == "unknown"
    assert absence(npu, [unreadable, unbound]).verdict == "bad"
    assert absence(npu, []).reason == "lost"


class FakeDriver:
    """A driver whose answers a test sets."""

    name = "rknpu"

    def __init__(self, *, bound: bool | None = True, load: NpuError | None = None) -> None:
        self._bound = bound
        self._load = load

    def discover(self, host: Host) -> Inventory:
        """Find nothing."""
        return Inventory()

    def load(self, host: Host, npu: Npu) -> tuple[CoreLoad, ...]:
        """Raise what the test wants."""
        if self._load is not None:
            raise self._load
        return ()

    def clock(self, host: Host, npu: Npu) -> Clock:
        """Tell nothing."""
        return Clock()

    def powered(self, host: Host, npu: Npu) -> bool | None:
        """Tell nothing."""
        return None

    def bound(self, host: Host, npu: Npu) -> bool | None:
        """Tell what the test wants."""
        return self._bound


def on_null_device(path: str = "/dev/null") -> Npu:
    node = DeviceNode(role="card", path=path, stable_path=path, container_path="/dev/dri/card1")
    return drm_npu(nodes=(node,))


def test_character_device_with_bound_driver_is_good() -> None:
    """The device node is looked at, never opened."""
    assert probe(Host("/"), FakeDriver(), on_null_device()) == GOOD


def test_missing_and_wrong_nodes_are_bad(tmp_path: Path) -> None:
    """A node that is gone, and one that is a plain file."""
    (tmp_path / "file").touch()

    assert probe(Host(tmp_path), FakeDriver(), on_null_device("/gone")).reason == "node_missing"
    assert probe(Host(tmp_path), FakeDriver(), on_null_device("/file")).reason == "not_a_device"


@pytest.mark.parametrize(("bound", "verdict"), [(False, "bad"), (None, "unknown")])
def test_binding(*, bound: bool | None, verdict: str) -> None:
    """Not bound is a fault; not readable is not."""
    assert probe(Host("/"), FakeDriver(bound=bound), on_null_device()).verdict == verdict


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (MissingError("/load", errno.ENOENT), "good"),
        (DeniedError("/load", errno.EACCES), "unknown"),
        (ImplausibleError("/load", "###", "a load"), "unknown"),
    ],
)
def test_load_file_is_no_evidence_of_a_fault(error: NpuError, verdict: str) -> None:
    """A kernel without debugfs, or with another format, runs programs all the same."""
    assert probe(Host("/"), FakeDriver(load=error), on_null_device()).verdict == verdict


def test_fault_wins_over_unknown() -> None:
    """One piece of evidence is enough."""
    driver = FakeDriver(bound=False, load=DeniedError("/load", errno.EACCES))

    assert probe(Host("/"), driver, on_null_device()).reason == "driver_not_bound"

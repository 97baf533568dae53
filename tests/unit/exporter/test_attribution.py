"""Who is given the busy time, through all parts from the kubelet's answer to the counters."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.accounting import Pod
from exporter.collectors.allocation import AllocationCollector
from exporter.succession import Succession
from kubelet.podresources import PodDevices, PodResourcesError
from tests.unit.exporter.fakes import FakeLister, Parts, held, loads, npu, values, watch

ALICE, BOB = Pod(namespace="team-a", name="alice"), Pod(namespace="team-a", name="bob")


def measuring(*held_now: PodDevices) -> Parts:
    """Return the parts of an exporter that has asked the kubelet and sampled once."""
    parts = Parts(watch(npu()), FakeLister(*held_now))
    parts.allocation.step()
    parts.sampler.step()
    return parts


def seconds(parts: Parts, *ratios: float, count: int) -> None:
    """Let time pass at a load, asking the kubelet every fifth second as the loop does."""
    parts.load = loads(*ratios)
    for number in range(count):
        if number % 5 == 0:
            parts.allocation.step()
        parts.second()


def test_a_pod_shorter_than_a_scrape_is_billed() -> None:
    """It comes and goes between two scrapes; its counter is there for five minutes more."""
    parts = measuring()
    seconds(parts, 0.0, 0.0, count=5)
    parts.lister.held = (held("alice", "npu0"),)
    seconds(parts, 1.0, 0.5, count=10)
    parts.lister.held = ()
    seconds(parts, 0.0, 0.0, count=60)

    samples = AllocationCollector(parts.board, parts.account, parts.allocation).collect().samples
    assert values(samples, "npu_pod_core_busy_seconds_total") == {
        ("team-a", "alice", "exclusive"): pytest.approx(15.0)
    }
    assert values(samples, "npu_device_allocation_info") == {}


def test_use_without_asking_is_unaccounted() -> None:
    """A privileged Pod that opens the device on its own is nobody's bill, and not hidden."""
    parts = measuring()
    seconds(parts, 1.0, count=10)
    assert parts.account.unaccounted("npu0")["no_holder"] == pytest.approx(10.0)
    assert parts.account.pods() == {}


def test_sharers_of_slots_are_estimated() -> None:
    """Three slots of two Pods: halves, because the driver does not tell who was busy."""
    parts = measuring(held("alice", "npu0-s0", "npu0-s1"), held("bob", "npu0-s2"))
    seconds(parts, 1.0, 1.0, count=10)
    assert parts.account.pods() == {
        (ALICE, "estimated"): pytest.approx(10.0),
        (BOB, "estimated"): pytest.approx(10.0),
    }


def test_finished_pod_that_is_still_listed_gets_nothing() -> None:
    """The whole NPU was given to the next Pod, so the one before has ended."""
    parts = measuring(held("alice", "npu0"))
    seconds(parts, 1.0, count=5)
    parts.lister.held = (held("alice", "npu0"), held("bob", "npu0"))
    seconds(parts, 1.0, count=5)
    assert parts.account.pods() == {
        (ALICE, "exclusive"): pytest.approx(5.0),
        (BOB, "exclusive"): pytest.approx(5.0),
    }


def test_succession_of_an_identifier() -> None:
    """The last comer has it; together from the start is not known; claims may be shared."""
    succession = Succession()
    a, b, c = (held(name, "npu0") for name in "abc")
    assert succession.living([a, b]) == (a, b)
    assert succession.living([a, b, c]) == (c,)
    assert succession.living([a, b, c]) == (c,)
    assert succession.living([a, b]) == (a, b)
    two = held("d", "npu0", "npu1")
    (kept,) = succession.living([two, a])
    assert kept == two
    shared = [
        PodDevices(
            namespace="n", pod=p, container="c", resource="d.e", device_ids=("x",), dynamic=True
        )
        for p in "ab"
    ]
    assert Succession().living(shared[:1]) == tuple(shared[:1])
    assert succession.living(shared) == tuple(shared)


@dataclass(frozen=True, slots=True)
class Moment:
    """Some seconds at a load with these Pods listed; None: the kubelet fails."""

    pods: tuple[tuple[str, tuple[str, ...]], ...] | None
    ratios: tuple[float, ...]
    count: int


slots = st.lists(st.sampled_from(["npu0", "npu0-s0", "npu0-s1", "npu1", "x"]), max_size=3)
pods = st.lists(st.tuples(st.sampled_from("abcd"), slots.map(tuple)), max_size=4).map(tuple)
moments = st.builds(
    Moment,
    pods=st.none() | pods,
    ratios=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=3).map(tuple),
    count=st.integers(1, 12),
)


@given(st.lists(moments, max_size=12))
def test_owners_add_up_to_the_devices(script: list[Moment]) -> None:
    """Whoever comes, goes, shares, finishes or is not told: Pods + unaccounted = devices."""
    parts = Parts(watch(npu("npu0"), npu("npu1")), FakeLister())
    parts.allocation.step()
    for moment in script:
        if moment.pods is None:
            parts.lister.error = PodResourcesError("timeout", "mute")
        else:
            parts.lister.error = None
            parts.lister.held = tuple(held(name, *ids) for name, ids in moment.pods if ids)
        seconds(parts, *moment.ratios, count=moment.count)

    busy = sum(
        core.busy_seconds for n in ("npu0", "npu1") for core in parts.account.cores(n).values()
    )
    unaccounted = sum(sum(parts.account.unaccounted(n).values()) for n in ("npu0", "npu1"))
    assert sum(parts.account.pods().values()) + unaccounted == pytest.approx(busy)

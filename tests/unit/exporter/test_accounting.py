"""Busy and sampled time: what a sample is worth, and who gets it."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.accounting import Account, Pod
from npu.model import CoreLoad
from tests.unit.exporter.fakes import loads

ALICE = Pod(namespace="team-a", name="alice")
BOB = Pod(namespace="team-b", name="bob")
NOBODY: dict[str, Sequence[Pod]] = {}


def seconds(account: Account, core: int = 0) -> tuple[float, float]:
    found = account.cores("npu0")[core]
    return found.busy_seconds, found.sampled_seconds


def test_first_sample_starts_counters_at_zero() -> None:
    """A series is born at 0, so that increase() sees its first second."""
    account = Account()
    account.record("npu0", 10.0, loads(1.0), NOBODY)
    assert seconds(account) == (0.0, 0.0)


def test_a_second_at_half_load() -> None:
    """Half a second busy of one sampled."""
    account = Account()
    account.record("npu0", 10.0, loads(0.5), NOBODY)
    account.record("npu0", 11.0, loads(0.5), NOBODY)
    assert seconds(account) == (0.5, 1.0)


def test_a_sample_speaks_for_its_window_only() -> None:
    """After a gap of a minute the sample covers one second; nothing is extrapolated."""
    account = Account()
    account.record("npu0", 10.0, loads(1.0), NOBODY)
    account.record("npu0", 70.0, loads(1.0), NOBODY)
    assert seconds(account) == (1.0, 1.0)


def test_an_early_sample_covers_the_time_that_passed() -> None:
    """Two samples in one second do not count that second twice."""
    account = Account()
    for at in (10.0, 10.25, 10.5, 10.75, 11.0):
        account.record("npu0", at, loads(1.0), NOBODY)
    assert seconds(account) == (1.0, 1.0)


def test_time_going_backwards_adds_nothing() -> None:
    """A clock that is not monotonic after all cannot make a counter fall."""
    account = Account()
    account.record("npu0", 10.0, loads(1.0), NOBODY)
    account.record("npu0", 9.0, loads(1.0), NOBODY)
    assert seconds(account) == (0.0, 0.0)


def test_a_core_that_appears_later_starts_at_zero() -> None:
    """Cores are what the driver lists, not a fixed number."""
    account = Account()
    account.record("npu0", 10.0, loads(1.0), NOBODY)
    account.record("npu0", 11.0, loads(1.0, 1.0), NOBODY)
    assert seconds(account, core=1) == (0.0, 0.0)


def test_clamped_loads_are_counted() -> None:
    """A load above 100 % counts as full and is told."""
    account = Account()
    account.record("npu0", 10.0, [CoreLoad(core=0, ratio=1.0, clamped=True)], NOBODY)
    assert account.out_of_range("npu0") == 1


def test_pods_not_containers_share_a_device() -> None:
    """Two holders get half each, marked as an estimate."""
    account = Account()
    holders = {"npu0": (ALICE, BOB)}
    account.hold(holders, 10.0)
    account.record("npu0", 10.0, loads(1.0, 1.0), holders)
    account.record("npu0", 11.0, loads(1.0, 1.0), holders)
    assert account.pods() == {(ALICE, "estimated"): 1.0, (BOB, "estimated"): 1.0}


def test_pod_counters_start_at_zero_and_outlive_the_pod() -> None:
    """A new holder is seen at 0; its counter stays for five minutes after its last hold."""
    account = Account(retention_seconds=300.0)
    account.record("npu0", 9.0, loads(0.0), NOBODY)
    account.hold({"npu0": (ALICE,)}, 10.0)
    assert account.pods() == {(ALICE, "exclusive"): 0.0}
    account.hold(NOBODY, 310.0)
    assert account.pods() == {(ALICE, "exclusive"): 0.0}
    account.hold(NOBODY, 310.1)
    assert account.pods() == {}


def test_load_that_nobody_measures_is_no_zero() -> None:
    """A driver without a load (Ascend's): neither Pods nor nobody were busy for 0 seconds."""
    account = Account()
    held = {"davinci0": (ALICE,), "npu0": (BOB,)}
    for at in (10.0, 11.0):
        account.hold(held, at)
        account.record("davinci0", at, (), held)
        account.record("npu0", at, loads(1.0), held)
    assert account.pods() == {(BOB, "exclusive"): 1.0}
    assert account.unaccounted("davinci0") == {}
    account.record("davinci0", 12.0, loads(1.0), held)
    assert account.pods()[ALICE, "exclusive"] == 0.0
    assert account.unaccounted("davinci0") == {"no_holder": 0.0, "holders_unknown": 0.0}


def test_use_without_holder_is_unaccounted() -> None:
    """Busy time of nobody has a name, and another one where the kubelet did not tell."""
    account = Account()
    account.record("npu0", 10.0, loads(1.0), NOBODY)
    account.record("npu0", 11.0, loads(1.0), NOBODY)
    account.record("npu0", 12.0, loads(1.0), None)
    assert account.unaccounted("npu0") == {"no_holder": 1.0, "holders_unknown": 1.0}


sample = st.tuples(
    st.floats(min_value=0.0, max_value=5.0),
    st.lists(st.floats(min_value=0.0, max_value=1.0), min_size=0, max_size=3),
    st.sampled_from([None, (), (ALICE,), (BOB,), (ALICE, BOB)]),
)


@given(st.lists(sample, max_size=40))
def test_laws(
    samples: list[tuple[float, list[float], tuple[Pod, ...] | None]],
) -> None:
    """Counters never fall, busy never exceeds sampled, and every busy second has one owner."""
    account = Account()
    at = 0.0
    before: dict[int, tuple[float, float]] = {}
    for step, ratios, pods in samples:
        at += step
        account.record("npu0", at, loads(*ratios), None if pods is None else {"npu0": pods})
        now = {n: (c.busy_seconds, c.sampled_seconds) for n, c in account.cores("npu0").items()}
        for core, (busy, sampled) in now.items():
            assert busy <= sampled <= at
            assert (busy, sampled) >= before.get(core, (0.0, 0.0))
            assert sampled >= before.get(core, (0.0, 0.0))[1]
        before = now
    total = sum(busy for busy, _ in before.values())
    owned = sum(account.pods().values()) + sum(account.unaccounted("npu0").values())
    assert owned == pytest.approx(total)


class Windows:
    """The kernel's side: bursts of work, shown as the share of the last finished second."""

    def __init__(self, seed: int, duration_seconds: int) -> None:
        source = random.Random(seed)  # noqa: S311 - a reproducible load, not a secret
        self.phase = source.random()
        level = 0.5
        self._shares: list[float] = []
        for _ in range(duration_seconds + 2):
            level = min(1.0, max(0.0, level + source.uniform(-0.4, 0.4)))
            self._shares.append(level)

    def shown(self, at: float) -> CoreLoad:
        """Return what the file says at ``at``, in whole percent."""
        window = int(at - self.phase)
        return CoreLoad(core=0, ratio=int(self._shares[max(0, window - 1)] * 100) / 100)

    def true_ratio(self) -> float:
        """Return the real busy share over the whole time."""
        return sum(self._shares) / len(self._shares)


@pytest.mark.parametrize("seed", range(5))
def test_an_hour_is_measured_within_a_percentage_point(seed: int) -> None:
    """Sampling at 1 Hz with jitter and gaps gives the true utilisation."""
    windows = Windows(seed, 3600)
    jitter = random.Random(seed)  # noqa: S311 - as above
    account = Account()
    for second in range(2, 3600):
        if second % 97 == 0:
            continue
        at = second + jitter.uniform(0.0, 0.2)
        account.record("npu0", at, [windows.shown(at)], NOBODY)
    busy, sampled = seconds(account)
    assert busy / sampled == pytest.approx(windows.true_ratio(), abs=0.01)
    assert 3400 < sampled < 3600

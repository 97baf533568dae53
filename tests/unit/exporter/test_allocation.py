"""Who holds what: folding of slots, failures of the kubelet, nodes without NPU."""

from exporter.accounting import Pod
from exporter.allocation import holders_of, pods_by_device
from tests.unit.exporter.fakes import FakeLister, Parts, held, npu, watch

PREFIXES = ("rockchip.com/", "huawei.com/")


def test_slots_fold_into_their_device() -> None:
    """A container with two slots of one NPU holds that NPU once."""
    (holder,) = holders_of([held("a", "npu0-s0", "npu0-s1")], PREFIXES)
    assert (holder.device, holder.pod, holder.container) == ("npu0", "a", "main")


def test_foreign_resources_and_identifiers_are_not_ours() -> None:
    """Neither another vendor's device nor another grammar becomes an NPU."""
    entries = [
        held("a", "npu0", resource="example.com/npu"),
        held("b", "vpu0", "fdea0000.video", "npu", "npu00", resource="rockchip.com/vpu"),
    ]
    assert holders_of(entries, PREFIXES) == ()


def test_ascend_chips_are_devices() -> None:
    """The second vendor's identifiers are understood."""
    (holder,) = holders_of([held("a", "davinci3", resource="huawei.com/Ascend910B")], PREFIXES)
    assert holder.device == "davinci3"


def test_two_containers_of_a_pod_are_one_sharer() -> None:
    """A Pod's share does not grow with its containers."""
    entries = [
        held("a", "npu0-s0", container="one"),
        held("a", "npu0-s1", container="two"),
        held("b", "npu0-s2"),
    ]
    assert pods_by_device(holders_of(entries, PREFIXES)) == {
        "npu0": (Pod(namespace="team-a", name="a"), Pod(namespace="team-a", name="b"))
    }


def test_kubelet_failure_forgets_the_holders_at_once() -> None:
    """An old answer is never given for now; the next good one counts again."""
    lister = FakeLister(held("a", "npu0"))
    parts = Parts(watch(npu()), lister)
    parts.allocation.step()
    assert parts.allocation.pods() == {"npu0": (Pod(namespace="team-a", name="a"),)}

    lister.error = OSError("gone")
    parts.allocation.step()
    assert parts.allocation.pods() is None
    assert parts.allocation.current.holders is None
    assert parts.failures.counts()["allocation"] == 1

    lister.error = None
    parts.allocation.step()
    assert parts.allocation.pods() is not None


def test_nobody_is_asked_on_a_node_without_npu() -> None:
    """Such a node spares the kubelet the call and itself the memory of gRPC."""
    lister = FakeLister()
    parts = Parts(watch(), lister)
    parts.allocation.step()
    assert lister.calls == 0
    assert parts.allocation.current.error is None

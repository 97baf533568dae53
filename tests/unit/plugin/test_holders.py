"""Holders are what the kubelet last told, however long ago."""

from kubelet.podresources import PodDevices, PodResourcesError
from plugin.holders import Holder, Holders
from tests.unit.plugin.boards import RESOURCE


def entry(resource: str, *ids: str) -> PodDevices:
    return PodDevices(
        namespace="vision", pod="detector-0", container="main", resource=resource, device_ids=ids
    )


class Kubelet:
    """Answers or fails as a test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.answer: tuple[PodDevices, ...] | PodResourcesError = ()
        self.holders = Holders(self.ask, ours={RESOURCE}.__contains__, monotonic=lambda: self.now)

    def ask(self, timeout_seconds: float) -> tuple[PodDevices, ...]:
        """Answer within the limit."""
        assert timeout_seconds > 0
        if isinstance(self.answer, PodResourcesError):
            raise self.answer
        return self.answer


def test_nothing_is_known_before_the_first_answer() -> None:
    """Not asked yet is not "nobody holds anything"."""
    holders = Kubelet().holders

    assert holders.age_seconds() is None
    assert holders.problem() is not None
    assert holders.held() == {}


def test_only_our_resources_are_kept() -> None:
    """Other vendors' devices are nobody's business here."""
    kubelet = Kubelet()
    kubelet.answer = (entry(RESOURCE, "npu0"), entry("nvidia.com/gpu", "GPU-1"))

    kubelet.holders.step()

    holder = Holder(namespace="vision", pod="detector-0", container="main")
    assert kubelet.holders.held() == {RESOURCE: {"npu0": holder}}
    assert kubelet.holders.problem() is None


def test_failure_keeps_what_was_known_and_its_age() -> None:
    """The last answer stays, with its age and the reason for it; errors are counted."""
    kubelet = Kubelet()
    kubelet.answer = (entry(RESOURCE, "npu0"),)
    kubelet.holders.step()
    kubelet.answer = PodResourcesError("timeout", "kubelet.sock: DEADLINE_EXCEEDED")

    for _ in range(3):
        kubelet.now += 10
        kubelet.holders.step()

    assert set(kubelet.holders.held()[RESOURCE]) == {"npu0"}
    assert kubelet.holders.age_seconds() == 30
    assert kubelet.holders.problem() == "kubelet.sock: DEADLINE_EXCEEDED"
    assert kubelet.holders.errors == {"timeout": 3}


def test_answer_after_failures_is_taken() -> None:
    """A released device is free, and the problem is gone."""
    kubelet = Kubelet()
    kubelet.answer = (entry(RESOURCE, "npu0"),)
    kubelet.holders.step()
    kubelet.answer = PodResourcesError("timeout", "late")
    kubelet.holders.step()
    kubelet.answer = ()

    kubelet.holders.step()

    assert kubelet.holders.held() == {}
    assert kubelet.holders.problem() is None
    assert kubelet.holders.age_seconds() == 0

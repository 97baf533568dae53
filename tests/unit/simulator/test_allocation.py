"""What the kubelet told, and what counts while it does not."""

from kubelet.podresources import PodDevices, PodResourcesError
from simulator.allocation import Allocation

HELD = PodDevices(
    namespace="team", pod="a", container="main", resource="rockchip.com/npu", device_ids=("npu0",)
)


class Kubelet:
    """Answers, or fails while ``reason`` is set."""

    def __init__(self) -> None:
        self.failing = False

    def __call__(self, timeout_seconds: float) -> tuple[PodDevices, ...]:
        """List."""
        if self.failing:
            raise PodResourcesError("unavailable", "the kubelet restarts")
        return (HELD,)


def test_a_short_outage_changes_nothing_and_a_long_one_frees_the_board() -> None:
    """A kubelet restart takes seconds; after half a minute nobody knows who holds what."""
    now = 0.0
    kubelet = Kubelet()
    allocation = Allocation(kubelet, monotonic=lambda: now)
    assert allocation.held() == ()
    allocation.step()
    assert allocation.held() == (HELD,)
    kubelet.failing = True
    now = 20.0
    allocation.step()
    assert allocation.held() == (HELD,)
    now = 31.0
    allocation.step()
    assert allocation.held() == ()
    assert allocation.errors["unavailable"] == 2
    kubelet.failing = False
    allocation.step()
    assert allocation.held() == (HELD,)

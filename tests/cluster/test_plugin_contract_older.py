"""The contract with the kubelet of the oldest Kubernetes tested."""

from collections.abc import Iterator

import pytest

from ci.cluster import Cluster
from tests.cluster.kubelet_rig import RealRig, real_rig
from tests.component.plugin.contract import (  # noqa: F401 - collected here
    test_lost_device_is_not_handed_out_until_it_is_back,
    test_offer_lasts_as_long_as_the_plugin,
    test_pod_is_not_taken_back_before_its_plugin,
    test_removed_socket_is_replaced,
    test_restarted_kubelet_knows_the_device_again,
    test_running_pod_keeps_its_device_through_all_restarts,
)


@pytest.fixture
def rig(cluster: Cluster) -> Iterator[RealRig]:
    """A real kubelet, on which no other plugin serves NPUs."""
    with real_rig(cluster) as one:
        yield one

"""A running cluster for the tests below: the one named by NPU_TEST_CLUSTER, or an own one."""

import os
from collections.abc import Iterator

import pytest

from ci.cluster import Cluster
from ci.kube import Kube

# The clock runs for the test alone: its cluster may have to be built first.
_SECONDS = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test here as one that needs a cluster."""
    for item in items:
        if "cluster" not in item.path.parts:
            continue
        item.add_marker(pytest.mark.cluster)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_SECONDS, func_only=True))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Give a cluster of two Ready nodes; one that was there before is left as it is."""
    named = os.environ.get("NPU_TEST_CLUSTER")
    one = Cluster(named or "test")
    one.up()
    yield one
    if not named:
        one.down()


@pytest.fixture(scope="session")
def kube(cluster: Cluster) -> Kube:
    """Give kubectl and helm on that cluster."""
    return Kube(kubeconfig=cluster.kubeconfig)

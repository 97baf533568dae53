"""Installs the platform once for all tests of this folder."""

from collections.abc import Iterator

import pytest

from ci.cluster import Cluster
from ci.demo.story import NAMESPACE, namespace_manifest
from ci.images import load_images
from ci.kube import Kube
from tests.cluster.platform.installed import Platform

BOARDS = 2


@pytest.fixture(scope="session")
def platform(cluster: Cluster) -> Iterator[Platform]:
    """The platform on two nodes with a simulated board and one without."""
    cluster.up(nodes=BOARDS + 1)
    nodes = sorted(cluster.nodes)
    kube = Kube(kubeconfig=cluster.kubeconfig)
    load_images(cluster)
    kube.kubectl("apply", "-f", "-", stdin=namespace_manifest())
    installed = Platform(
        cluster=cluster, kube=kube, boards=tuple(nodes[:BOARDS]), bare=nodes[BOARDS]
    )
    for node in installed.boards:
        installed.release(node)
    installed.install()
    installed.offers()
    yield installed
    if kube.helm("list", f"--namespace={NAMESPACE}", "--short").strip():
        kube.helm("uninstall", "npu", f"--namespace={NAMESPACE}", "--wait", seconds=400)


@pytest.fixture
def boards(platform: Platform) -> Iterator[Platform]:
    """The platform; boards that a test took over are given back."""
    yield platform
    for node in platform.boards:
        platform.release(node)


@pytest.fixture
def cool(boards: Platform) -> Platform:
    """All boards cool and no node tainted."""
    boards.cool()
    return boards

"""The walk of test_autoscaling.py where NPUs are handed out by claims."""

from collections.abc import Callable, Iterator

import pytest

from tests.cluster.platform.installed import Platform
from tests.cluster.platform.modes import Mode
from tests.cluster.platform.test_autoscaling import Scene, staged, walk

# Much for what it adds: five minutes, and KEDA on one more cluster.
pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(480)]


@pytest.fixture(scope="module")
def scene(platform: Platform) -> Iterator[Scene]:
    """The platform in mode ``dra``; the page gives each board several slots."""
    mode = Mode("dra", platform)
    mode.install("plugin.dra.readClaims=true")
    with staged(mode) as scene:
        yield scene


def test_replicas_follow_the_queue_by_claims(scene: Scene, measure: Callable[[str], None]) -> None:
    """The same page, the same commands, the same end; and it was claims that did it."""
    walk(scene, measure)
    assert all("extendedResourceClaimStatus" in pod["status"] for pod in scene.pods())

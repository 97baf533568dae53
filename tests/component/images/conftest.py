"""Every test here needs the fetched packages, and most need minutes on a cold cache."""

from pathlib import Path

import pytest

from ci.cache import cache_dir
from ci.debian import host_architecture
from images.build import Builder

CHECKOUT = Path(__file__).resolve().parents[3]
_SECONDS = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.image)
            item.add_marker(pytest.mark.timeout(_SECONDS))


@pytest.fixture(scope="session")
def builder() -> Builder:
    """Return a builder for this machine, with the cache that everybody shares."""
    return Builder(CHECKOUT, cache_dir(), host_architecture())

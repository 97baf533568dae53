"""A fake API server per test."""

from collections.abc import Iterator

import pytest

from tests.component.fake_apiserver import FakeApiServer


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    """Serve two nodes, one with foreign marks on it."""
    fake = FakeApiServer()
    fake.add_node("n1", taints=[{"key": "foreign", "value": "v", "effect": "NoSchedule"}])
    fake.add_node("n2")
    fake.add_exporter("n1", "127.0.0.1")
    fake.add_exporter("n2", "127.0.0.2")
    yield fake
    fake.close()

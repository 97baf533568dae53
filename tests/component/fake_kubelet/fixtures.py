"""Fixtures for tests with a fake kubelet: import them in a ``conftest.py``."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.component.fake_kubelet.kubelet import FakeKubelet


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short path: Unix socket paths have at most 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="npu-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def kubelet(place: Path) -> Iterator[FakeKubelet]:
    """A fake kubelet that is not started yet."""
    kubelet = FakeKubelet(place / "kubelet")
    yield kubelet
    kubelet.stop()

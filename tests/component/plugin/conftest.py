"""A fake kubelet, a simulated board and the plugin as a process."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.component.fake_kubelet import fixtures
from tests.component.plugin.plugin_process import PluginProcess, write_board

place = fixtures.place
kubelet = fixtures.kubelet


@pytest.fixture
def board(place: Path) -> Path:
    """The tree of a simulated RK3588 board."""
    return write_board(place / "board")


@pytest.fixture
def start(place: Path, board: Path) -> Iterator[Callable[..., PluginProcess]]:
    """Start plugin processes that end with the test."""
    processes: list[PluginProcess] = []

    def run(*extra: str, wrapper: tuple[str, ...] = ()) -> PluginProcess:
        processes.append(PluginProcess(place, place / "kubelet", board, *extra, wrapper=wrapper))
        return processes[-1]

    yield run
    for process in processes:
        process.end()

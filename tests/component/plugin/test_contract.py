"""The contract with the fake kubelet."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.component.fake_kubelet import FakeKubelet
from tests.component.plugin import contract
from tests.component.plugin.contract import (  # noqa: F401 - collected here
    test_lost_device_is_not_handed_out_until_it_is_back,
    test_offer_lasts_as_long_as_the_plugin,
    test_removed_socket_is_replaced,
    test_restarted_kubelet_knows_the_device_again,
)
from tests.component.plugin.plugin_process import PluginProcess


@dataclass
class FakeRig:
    """The fake kubelet as a rig."""

    kubelet: FakeKubelet
    board: Path
    start: Callable[[], PluginProcess]

    @property
    def kubelet_dir(self) -> Path:
        """The directory of the fake kubelet."""
        return self.kubelet.plugins.parent

    def start_plugin(self) -> PluginProcess:
        """Start a plugin."""
        return self.start()

    def restart_kubelet(self) -> None:
        """Restart the fake kubelet."""
        self.kubelet.restart()


@pytest.fixture
def rig(kubelet: FakeKubelet, board: Path, start: Callable[[], PluginProcess]) -> contract.Rig:
    """The fake kubelet, started."""
    kubelet.start()
    return FakeRig(kubelet, board, start)

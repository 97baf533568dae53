"""The contract with the fake kubelet."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.component.fake_kubelet import AdmissionError, FakeKubelet
from tests.component.plugin import contract
from tests.component.plugin.contract import (  # noqa: F401 - collected here
    Given,
    test_lost_device_is_not_handed_out_until_it_is_back,
    test_offer_lasts_as_long_as_the_plugin,
    test_pod_is_not_taken_back_before_its_plugin,
    test_removed_socket_is_replaced,
    test_restarted_kubelet_knows_the_device_again,
    test_running_pod_keeps_its_device_through_all_restarts,
)
from tests.component.plugin.plugin_process import RESOURCE, PluginProcess


@dataclass
class FakeRig:
    """The fake kubelet as a rig."""

    kubelet: FakeKubelet
    board: Path
    start: Callable[[], PluginProcess]
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def kubelet_dir(self) -> Path:
        """The directory of the fake kubelet."""
        return self.kubelet.plugins.parent

    def start_plugin(self) -> PluginProcess:
        """Start a plugin."""
        return self.start()

    def restart_kubelet(self) -> None:
        """Restart the fake kubelet, which takes back the Pods that run."""
        self.kubelet.restart()
        for entry in self.kubelet.pods.held():
            self.kubelet.pods.readmit(entry.pod, running=True)

    def power_cycle(self) -> None:
        """Restart the fake kubelet, which takes back what it may."""
        self.kubelet.restart()
        for entry in self.kubelet.pods.held():
            try:
                self.kubelet.pods.readmit(entry.pod, running=False)
            except AdmissionError as error:
                self.refused[entry.pod] = str(error)

    def run_pod(self, name: str) -> None:
        """Start a Pod."""
        assert self.kubelet.pods.admit(name, RESOURCE) is not None

    def given(self, name: str) -> Given:
        """Return what the container would be created with."""
        answer = self.kubelet.pods.restart_container(name)
        return Given(
            environment=dict(answer.envs),
            nodes=frozenset(device.container_path for device in answer.devices),
        )

    def restart_container(self, name: str) -> None:
        """There is no container."""

    def await_refusal(self, name: str) -> str:
        """Return what the kubelet said."""
        return self.refused[name]


@pytest.fixture
def rig(kubelet: FakeKubelet, board: Path, start: Callable[[], PluginProcess]) -> contract.Rig:
    """The fake kubelet, started."""
    kubelet.start()
    return FakeRig(kubelet, board, start)

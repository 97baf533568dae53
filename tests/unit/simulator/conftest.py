"""A board directory, and a player that a test drives second by second."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest

from kubelet.podresources import PodDevices
from npu.host import Host
from simulator.control import ControlFile
from simulator.generations import Generations
from simulator.player import Player
from simulator.settings import Settings


@dataclass
class Node:
    """A node with a simulator whose clock the test turns."""

    directory: Path
    real: Path
    player: Player
    control: ControlFile
    held: list[PodDevices] = field(default_factory=list)
    now: float = 1000.0

    @property
    def host(self) -> Host:
        """The board as plugin and exporter see it."""
        return Host(self.directory)

    def run(self, seconds: int) -> None:
        """Let seconds pass, a window each."""
        for _ in range(seconds):
            self.now += 1.0
            self.player.play()

    def hold(self, *identifiers: str, resource: str = "rockchip.com/npu") -> None:
        """Let containers hold devices."""
        self.held[:] = [
            PodDevices(
                namespace="team",
                pod=f"pod-{identifier}",
                container="main",
                resource=resource,
                device_ids=(identifier,),
            )
            for identifier in identifiers
        ]


class MakeNode(Protocol):
    """Makes a node and looks at it once."""

    def __call__(self, board: str | None = "rk3588", settings: Settings = ...) -> Node:
        """Make a node with a board."""


#: Device nodes need a capability.
PLAIN = Settings(device_nodes=False)


@pytest.fixture
def make_node(tmp_path: Path) -> MakeNode:
    def make(board: str | None = "rk3588", settings: Settings = PLAIN) -> Node:
        directory = tmp_path / "board"
        directory.mkdir(exist_ok=True)
        held: list[PodDevices] = []
        control = ControlFile(directory)
        player = Player(
            board_name=board,
            settings=settings,
            real=Host(tmp_path / "real"),
            generations=Generations(directory),
            control=control,
            held=lambda: tuple(held),
            monotonic=lambda: node.now,
        )
        node = Node(
            directory=directory, real=tmp_path / "real", player=player, control=control, held=held
        )
        player.look()
        player.play()
        return node

    return make

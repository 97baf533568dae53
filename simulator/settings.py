"""Configuration file of the simulator."""

from pathlib import Path
from typing import Annotated

import msgspec

from daemon import config
from daemon.config import ConfigError
from npu import catalogue

DEFAULT_PATH = Path("/etc/npu-platform/simulator.yaml")

#: The board of a node that shall have none.
NO_BOARD = "none"

Ratio = Annotated[float, msgspec.Meta(ge=0, le=1)]
Celsius = Annotated[float, msgspec.Meta(ge=-40, le=100)]
Speed = Annotated[float, msgspec.Meta(gt=0, le=1000)]


class Boards(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which board a node has: by its name, else the default; ``none`` means no board."""

    default: str = "rk3588"
    nodes: dict[str, str] = {}

    def of(self, node_name: str) -> str | None:
        """Return the board of a node, None where it shall have none."""
        name = self.nodes.get(node_name, self.default)
        return None if name == NO_BOARD else name


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What the simulated boards are and how they behave.

    ``busy_ratio`` is the load of a core whose device is allocated, ``busy_jitter_ratio`` how far it
    strays from that, by a generator started with ``seed``. ``speed`` divides the thermal time
    constants. ``device_nodes`` False writes empty files in place of character devices.
    """

    boards: Boards = Boards()
    speed: Speed = 1.0
    ambient_celsius: Celsius = 30.0
    busy_ratio: Ratio = 0.9
    busy_jitter_ratio: Ratio = 0.0
    seed: int = 0
    device_nodes: bool = True


def load(path: Path) -> Settings:
    """Read the configuration; the default path may be missing. Raises ConfigError."""
    if path == DEFAULT_PATH and not path.exists():
        return Settings()
    settings = config.load(path, Settings)
    known = catalogue.names()
    named = {"boards.default": settings.boards.default} | {
        f"boards.nodes.{node}": board for node, board in settings.boards.nodes.items()
    }
    for key, board in named.items():
        if board != NO_BOARD and board not in known:
            choices = ", ".join([*known, NO_BOARD])
            raise ConfigError(f"{path}: {key}: no board {board!r}; there are {choices}")
    return settings

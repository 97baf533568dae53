"""The configuration: what it decides, and that mistakes name their key."""

from pathlib import Path

import pytest

from daemon.config import ConfigError
from simulator import settings
from simulator.settings import Boards, Settings


def _load(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "simulator.yaml"
    path.write_text(text)
    return settings.load(path)


def test_the_board_of_a_node_is_its_own_or_the_default() -> None:
    """Nodes can differ, and one can have none."""
    boards = Boards(default="rk3588", nodes={"worker-2": "rk3576", "worker-3": "none"})
    assert boards.of("worker-1") == "rk3588"
    assert boards.of("worker-2") == "rk3576"
    assert boards.of("worker-3") is None
    assert Boards(default="none").of("") is None


def test_keys_are_those_of_the_chart(tmp_path: Path) -> None:
    """What the chart renders is understood."""
    read = _load(
        tmp_path,
        'boards:\n  default: "rk3588"\n  nodes: {"worker-2":"rk3576"}\n'
        "speed: 6\nambientCelsius: 40\nbusyRatio: 0.9\n",
    )
    assert read.boards.nodes == {"worker-2": "rk3576"}
    assert (read.speed, read.ambient_celsius, read.busy_ratio) == (6.0, 40.0, 0.9)


def test_defaults_serve_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the default path may be missing."""
    monkeypatch.setattr(settings, "DEFAULT_PATH", tmp_path / "absent.yaml")
    assert settings.load(tmp_path / "absent.yaml") == Settings()
    with pytest.raises(ConfigError, match="cannot be read"):
        settings.load(tmp_path / "other.yaml")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("speed: 0", "speed"),
        ("busyRatio: 1.5", "busyRatio"),
        ("ambientCelsius: hot", "ambientCelsius"),
        ("colour: red", "colour"),
        ("boards: {default: rk9999}", "boards.default"),
        ("boards: {nodes: {w1: rk9999}}", "boards.nodes.w1"),
    ],
)
def test_a_mistake_names_its_key(tmp_path: Path, text: str, key: str) -> None:
    """One line tells the administrator where to look."""
    with pytest.raises(ConfigError, match=key) as caught:
        _load(tmp_path, text)
    assert "\n" not in str(caught.value)

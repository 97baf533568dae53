"""Free slots of a simulated board follow its temperature, read from its files."""

from pathlib import Path

import pytest

from npu import catalogue
from npu.heat import Heat
from npu.host import Host
from npu.layout import expand, zone_temperature_path
from npu.scan import driver_of, scan
from npu.tree import materialise
from plugin.board import Board
from plugin.claims import Claims, Known
from plugin.config import HealthConfig, PluginConfig, SharingConfig
from plugin.health import GOOD
from plugin.looks import Looker
from plugin.thermometer import Thermometer
from tests.unit.plugin.boards import RESOURCE

_STEP = 5.0


class Scene:
    """An RK3588 in a directory, watched every five seconds of a clock that a test moves."""

    def __init__(self, directory: Path, *, slots: int = 3, informed: bool = True) -> None:
        self.now = 1000.0
        self.directory = directory
        model = catalogue.load("rk3588")
        materialise(expand(model), directory, device_nodes=False)
        self.zone = next(i for i, zone in enumerate(model.zones) if zone.type == "npu-thermal")
        self.held: tuple[str, ...] = ()
        host = Host(directory)
        config = PluginConfig(
            sharing=SharingConfig(slots=slots), health=HealthConfig(recover_after_seconds=1)
        )
        self.thermometer = Thermometer(
            host,
            config.thresholds,
            driver_of=driver_of,
            slots=config.policy.count,
            interval_seconds=_STEP,
            pace=config.pace,
        )
        self.claims = Claims(
            lambda: Known(held={RESOURCE: self.held}, asked_at=self.now if informed else None),
            monotonic=lambda: self.now,
        )
        looker = Looker(
            host,
            config,
            scan=lambda: scan(host),
            probe=lambda _npu: GOOD,
            monotonic=lambda: self.now,
        )
        self.board = Board(
            config,
            look=looker.look,
            claims=self.claims,
            thermometer=self.thermometer,
            monotonic=lambda: self.now,
        )

    def at(self, celsius: float | None, seconds: float = _STEP) -> dict[str, str]:
        """Return the reason or "ok" of each slot after a time at a temperature; None: no sensor."""
        file = self.directory / zone_temperature_path(self.zone).lstrip("/")
        if celsius is None:
            file.unlink(missing_ok=True)
        else:
            file.write_text(f"{int(celsius * 1000)}\n")
        for _ in range(int(seconds / _STEP)):
            self.now += _STEP
            self.board.step()
        return {
            slot.id: slot.reason if slot.state == "withdrawn" else "ok"
            for slot in self.board.offer.value.table.slots
        }


def reasons(*texts: str) -> dict[str, str]:
    return {f"npu0-s{number}": text for number, text in enumerate(texts)}


def test_slots_go_with_the_heat_and_come_back(tmp_path: Path) -> None:
    """One by one while warm, all but one at hot, all at critical, and slowly back."""
    scene = Scene(tmp_path)
    ok = "ok"
    assert scene.at(45, 60) == reasons(ok, ok, ok)

    assert scene.at(78, 30)["npu0-s2"] == "heat_warm"
    assert scene.at(78, 60) == reasons(ok, "heat_warm", "heat_warm")
    assert scene.at(84, 60) == reasons(ok, "heat_hot", "heat_hot")
    assert scene.at(95, 60) == reasons("heat_critical", "heat_critical", "heat_critical")
    assert scene.at(50, 300)["npu0-s0"] == ok
    assert scene.at(50, 1200) == reasons(ok, ok, ok)


def test_held_slots_are_never_withdrawn(tmp_path: Path) -> None:
    """Whatever the heat: the kubelet would not take their Pods back."""
    scene = Scene(tmp_path)
    scene.held = ("npu0-s1", "npu0-s2")
    scene.at(45, 60)

    assert scene.at(84, 60) == reasons("heat_hot", "ok", "ok")
    assert scene.at(95, 60) == reasons("heat_critical", "ok", "ok")
    scene.held = ("npu0-s2",)
    assert scene.at(95) == reasons("heat_critical", "heat_critical", "ok")


def test_slot_just_handed_out_is_not_withdrawn(tmp_path: Path) -> None:
    """The kubelet lists it a moment later."""
    scene = Scene(tmp_path)
    scene.at(45, 60)
    scene.claims.give(RESOURCE, ["npu0-s2"])

    assert scene.at(95, 55)["npu0-s2"] == "ok"


def test_whole_device_is_withdrawn_only_at_critical_and_only_when_free(tmp_path: Path) -> None:
    """A hot board with one slot goes on being offered: the guard's taint is for that."""
    scene = Scene(tmp_path, slots=1)
    scene.at(45, 60)

    assert scene.at(84, 120) == {"npu0": "ok"}
    assert scene.at(95, 60) == {"npu0": "heat_critical"}
    scene.held = ("npu0",)
    assert scene.at(95) == {"npu0": "ok"}


def test_nothing_is_withdrawn_while_holders_are_not_known(tmp_path: Path) -> None:
    """Every slot might be held."""
    scene = Scene(tmp_path, informed=False)
    scene.at(45, 60)

    assert scene.at(95, 60) == reasons("ok", "ok", "ok")


def test_hot_board_is_limited_from_the_first_list_on(tmp_path: Path) -> None:
    """The first reading of a plugin that has just started is enough."""
    assert Scene(tmp_path).at(90) == reasons(*["heat_unknown"] * 3)


def test_lost_sensor_leaves_one_slot(tmp_path: Path) -> None:
    """Frozen for a minute, then one, and the states are told."""
    scene = Scene(tmp_path)
    scene.at(45, 60)

    assert scene.at(None, 50) == reasons("ok", "ok", "ok")
    assert scene.thermometer.heated["npu0"].machine.state is Heat.UNKNOWN
    assert scene.at(None, 20) == reasons("ok", "heat_unknown", "heat_unknown")
    assert scene.thermometer.heated["npu0"].allowed == 1


def test_board_without_sensor_is_not_limited(tmp_path: Path) -> None:
    """Nothing to read is no loss."""
    scene = Scene(tmp_path)
    for zone in (tmp_path / "sys/class/thermal").glob("thermal_zone*"):
        zone.rename(tmp_path / zone.name)

    assert scene.at(None, 120) == reasons("ok", "ok", "ok")
    assert scene.thermometer.heated == {}


@pytest.mark.parametrize("content", ["", "hot\n", "999999999\n", "-275000\n"])
def test_nonsense_is_no_temperature(tmp_path: Path, content: str) -> None:
    """It counts as missing, and the daemon lives."""
    scene = Scene(tmp_path)
    scene.at(45, 60)
    file = tmp_path / zone_temperature_path(scene.zone).lstrip("/")
    file.write_text(content)
    for _ in range(14):
        scene.now += _STEP
        scene.board.step()

    assert scene.thermometer.heated["npu0"].allowed == 1

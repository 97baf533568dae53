"""A board on which nothing comes or goes is not read from end to end each time."""

import errno
from dataclasses import replace

from npu.errors import MissingError
from npu.host import Host
from npu.model import Inventory, Npu, Refused
from plugin.config import HealthConfig, PluginConfig
from plugin.health import GOOD, Finding
from plugin.looks import Look, Looker
from tests.unit.plugin.boards import drm_npu

PERIOD = 30.0


class Files(Host):
    """A host with device nodes that a test takes away, and directories that it fills."""

    def __init__(self) -> None:
        super().__init__("/nowhere")
        self.missing: set[str] = set()
        self.entries = ["card1", "renderD129"]

    def real_path(self, path: str) -> str:
        """Return the path: there are no links."""
        return path

    def device_number(self, path: str) -> tuple[int, int] | None:
        """Return a number for nodes that are there."""
        if path in self.missing:
            raise MissingError(path, errno.ENOENT)
        return 226, len(path)

    def names(self, path: str) -> list[str]:
        """Return the same entries everywhere."""
        return self.entries


class Scene:
    """A looker with a clock, counting scans."""

    def __init__(self) -> None:
        self.files = Files()
        self.now = 0.0
        self.scans = 0
        self.inventory = Inventory(npus=(drm_npu(),))
        config = PluginConfig(health=HealthConfig(period_seconds=PERIOD))
        self.looker = Looker(
            self.files, config, scan=self.scan, probe=self.probe, monotonic=lambda: self.now
        )

    def scan(self) -> Inventory:
        """Count."""
        self.scans += 1
        return self.inventory

    def probe(self, npu: Npu) -> Finding:
        """Find every device well."""
        del npu
        return GOOD

    def after(self, seconds: float) -> Look:
        """Look ``seconds`` later."""
        self.now += seconds
        return self.looker.look()


def test_quiet_board_is_scanned_with_its_probes() -> None:
    """Six looks in half a minute, one scan; then the next one, whatever the glance says."""
    scene = Scene()
    looks = [scene.after(5) for _ in range(6)]

    assert scene.scans == 1
    assert looks[0] == looks[-1]
    scene.after(5)
    assert scene.scans == 2


def test_lost_node_is_seen_at_once_and_as_long_as_it_is_lost() -> None:
    """The scan, not the glance, says what it means."""
    scene = Scene()
    scene.after(5)
    scene.files.missing = {scene.inventory.npus[0].nodes[0].stable_path}

    scene.after(1)
    scene.after(1)

    assert scene.scans == 3
    scene.files.missing = set()
    scene.after(1)
    scene.after(1)
    assert scene.scans == 4


def test_new_device_is_seen_at_once() -> None:
    """A driver that takes up a device adds an entry somewhere."""
    scene = Scene()
    scene.after(5)
    scene.files.entries = [*scene.files.entries, "card2"]
    scene.inventory = Inventory(npus=(drm_npu(0), drm_npu(1)))

    assert [npu.id for npu in scene.after(1).inventory.npus] == ["npu0", "npu1"]
    scene.after(1)
    assert scene.scans == 2


def test_board_without_npu_or_with_refused_hardware_is_scanned_each_time() -> None:
    """A driver that loads late need not change any node that is known."""
    scene = Scene()
    refused = Refused(what="fdab0000.npu", why="driver_not_bound", detail="dmesg")
    for inventory in (Inventory(), replace(scene.inventory, refused=(refused,))):
        scene.inventory = inventory
        before = scene.scans
        for _ in range(3):
            scene.after(PERIOD + 1 if scene.scans == before else 1)
        assert scene.scans == before + 3

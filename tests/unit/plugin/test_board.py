"""The board publishes what looks at it say."""

import struct
from pathlib import Path

from npu.host import Host
from npu.model import CoreLoad, Inventory, Npu
from plugin.board import Board
from plugin.claims import Claims, Known
from plugin.config import HealthConfig, PluginConfig
from plugin.health import GOOD, Finding
from plugin.looks import Looker
from tests.unit.plugin.boards import RESOURCE, drm_npu

BAD = Finding(verdict="bad", reason="driver_not_bound", detail="dmesg")


class Scene:
    """A board whose scan and probes a test sets, and a clock that a test moves."""

    def __init__(self, root: Path, config: PluginConfig | None = None) -> None:
        self.now = 0.0
        self.inventory = Inventory(npus=(drm_npu(),))
        self.finding = GOOD
        self.probed = 0
        self.ratio = 0.0
        self.known = Known()
        self.announced: list[set[str]] = []
        config = config or PluginConfig()
        looker = Looker(
            Host(root),
            config,
            scan=lambda: self.inventory,
            probe=self.probe,
            load=lambda _npu: (CoreLoad(core=0, ratio=self.ratio),),
            monotonic=lambda: self.now,
        )
        self.board = Board(
            config,
            look=looker.look,
            claims=Claims(lambda: self.known),
            announce=lambda offer: self.announced.append(set(offer.table.npus)),
            monotonic=lambda: self.now,
        )

    def probe(self, npu: Npu) -> Finding:
        """Answer what the test wants and count."""
        self.probed += 1
        return self.finding

    def after(self, seconds: float) -> dict[str, str]:
        """Return the states of all slots after a look ``seconds`` later."""
        self.now += seconds
        self.board.step()
        return {slot.id: slot.state for slot in self.board.offer.value.table.slots}


def library(root: Path, content: bytes) -> None:
    path = root / "usr/lib/librknnrt.so"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def elf(machine: int) -> bytes:
    return b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, machine)


def test_device_is_offered_lost_and_offered_again(tmp_path: Path) -> None:
    """The whole way, with the hold before the return."""
    scene = Scene(tmp_path, PluginConfig(health=HealthConfig(recover_after_seconds=60)))
    there = scene.inventory

    assert scene.after(0) == {"npu0": "healthy"}
    scene.inventory = Inventory()
    assert scene.after(5) == {"npu0": "unhealthy"}
    scene.inventory = there
    assert scene.after(5) == {"npu0": "unhealthy"}
    assert scene.after(59) == {"npu0": "unhealthy"}
    assert scene.after(1) == {"npu0": "healthy"}


def test_probe_has_its_own_period(tmp_path: Path) -> None:
    """Scans come every few seconds, probes every half minute, or when the scan changes."""
    scene = Scene(tmp_path, PluginConfig(health=HealthConfig(period_seconds=30)))

    for _ in range(6):
        scene.after(5)
    assert scene.probed == 1
    scene.after(5)
    assert scene.probed == 2
    scene.inventory = Inventory(npus=(drm_npu(0), drm_npu(1)))
    scene.after(5)
    assert scene.probed == 4


def test_bad_finding_takes_the_device_away(tmp_path: Path) -> None:
    """The reason of the probe is the reason of the slot."""
    scene = Scene(tmp_path)
    scene.finding = BAD

    assert scene.after(0) == {"npu0": "unhealthy"}
    assert scene.board.offer.value.table.of(RESOURCE)[0].reason == "driver_not_bound"


def test_library_for_this_board_is_kept(tmp_path: Path) -> None:
    """An aarch64 shared library is handed out."""
    library(tmp_path, elf(183))
    scene = Scene(tmp_path)

    scene.after(0)

    assert [item.name for item in scene.board.offer.value.table.npus["npu0"].libraries] == [
        "librknnrt.so"
    ]
    assert scene.board.library_problems == ()


def test_foreign_or_broken_library_is_not_handed_out(tmp_path: Path) -> None:
    """A container would fail at its start; without it the image's own library is used."""
    for content in (elf(62), b"\x7fELF", b""):
        library(tmp_path, content)
        scene = Scene(tmp_path)

        scene.after(0)

        assert scene.board.offer.value.table.npus["npu0"].libraries == ()
        assert len(scene.board.library_problems) == 1
        assert "/usr/lib/librknnrt.so" in scene.board.library_problems[0]


def test_extra_devices_that_exist_are_offered(tmp_path: Path) -> None:
    """The others are told."""
    scene = Scene(Path("/"), PluginConfig(extra_devices=("/dev/null", "/dev/rga-not-here")))

    scene.after(0)

    assert scene.board.offer.value.extra_devices == ("/dev/null",)
    assert scene.board.missing_devices == ("/dev/rga-not-here",)


def test_full_load_without_a_holder_is_told_and_changes_nothing(tmp_path: Path) -> None:
    """A minute of it is evidence, unless somebody holds the device or that is not known."""
    scene = Scene(tmp_path)
    scene.ratio = 0.99
    for _ in range(3):
        scene.after(60)
    assert not scene.board.evident("npu0"), "nobody told who holds what"

    scene.known = Known(held={RESOURCE: ["npu0", "somebody-elses"]}, asked_at=0.0)
    scene.after(60)
    scene.after(60)
    assert not scene.board.evident("npu0"), "a holder accounts for it"

    scene.known = Known(held={}, asked_at=scene.now)
    scene.after(5)
    assert not scene.board.evident("npu0")
    assert scene.after(60) == {"npu0": "healthy"}
    assert scene.board.evident("npu0")

    scene.ratio = 0.5
    scene.after(5)
    assert not scene.board.evident("npu0")


def test_stuck_device_is_unhealthy_on_request(tmp_path: Path) -> None:
    """With ``health.stuckIsUnhealthy``, and well again after the usual hold."""
    config = PluginConfig(health=HealthConfig(stuck_is_unhealthy=True, recover_after_seconds=60))
    scene = Scene(tmp_path, config)
    scene.known = Known(held={}, asked_at=0.0)
    scene.ratio = 1.0
    assert scene.after(0) == {"npu0": "healthy"}
    assert scene.after(60) == {"npu0": "unhealthy"}
    health = scene.board.health("npu0")
    assert health is not None
    assert health.reason == "stuck"

    scene.ratio = 0.0
    assert scene.after(5) == {"npu0": "unhealthy"}
    assert scene.after(60) == {"npu0": "healthy"}


def test_offer_is_announced_before_it_is_published(tmp_path: Path) -> None:
    """What a runtime looks up is there before the kubelet can hand it out."""
    scene = Scene(tmp_path)

    scene.after(0)

    assert scene.announced == [{"npu0"}]

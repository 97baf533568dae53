"""A hot device's clock is lowered and always given back."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu import catalogue
from npu.heat import Heat
from npu.host import Host
from npu.layout import expand
from npu.scan import scan
from npu.tree import materialise
from plugin.clamp import FILE_NAME, Clamp, ClampError, target_hertz, wanted, write

MEGA = 1_000_000


class Scene:
    """An RK3588 in a directory and a clamp that writes into it."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "board"
        self.state = directory / "run"
        self.state.mkdir(exist_ok=True)
        if not self.root.exists():
            materialise(expand(catalogue.load("rk3588")), self.root, device_nodes=False)
        self.host = Host(self.root)
        (self.npu,) = scan(self.host).npus
        self.writes: list[int] = []
        self.clamp = Clamp(self.host, self.state, ratio=0.6, write_limit=self.write)

    def write(self, path: str, hertz: int) -> None:
        """Write as the product does, and remember."""
        self.writes.append(hertz)
        write(path, hertz)

    def feel(self, *states: Heat) -> None:
        """Go through states."""
        for state in states:
            self.clamp.step({self.npu.id: self.npu}, {self.npu.id: state})

    @property
    def file(self) -> Path:
        """The limit, at its place in the tree."""
        unit = self.npu.unit
        return self.root / f"sys/class/devfreq/{unit}/max_freq"

    @property
    def limit(self) -> int:
        """The limit in MHz."""
        return int(self.file.read_text()) // MEGA


def test_clamped_at_hot_and_released_below(tmp_path: Path) -> None:
    """Two writes for a whole episode; recovering and not knowing change nothing."""
    scene = Scene(tmp_path)

    scene.feel(Heat.COOL, Heat.WARM, Heat.UNKNOWN)
    assert scene.limit == 1000
    scene.feel(Heat.HOT, Heat.CRITICAL, Heat.UNKNOWN, Heat.RECOVERING)
    assert scene.limit == 600
    held = scene.clamp.clamped(scene.npu)
    assert held is not None
    assert held.original_hertz == 1000 * MEGA
    scene.feel(Heat.WARM, Heat.COOL)

    assert scene.limit == 1000
    assert scene.writes == [600 * MEGA, 1000 * MEGA]
    assert not (scene.state / FILE_NAME).exists()


def test_stop_releases(tmp_path: Path) -> None:
    """Also when the plugin is uninstalled on a hot day."""
    scene = Scene(tmp_path)
    scene.feel(Heat.HOT)

    scene.clamp.stop()
    scene.feel(Heat.COOL, Heat.HOT)

    assert scene.limit == 1000


def test_killed_plugin_is_mended_by_the_next(tmp_path: Path) -> None:
    """The first limit is given back, also one that was lower than the hardware's."""
    scene = Scene(tmp_path)
    scene.file.write_text(f"{900 * MEGA}\n")
    scene.feel(Heat.HOT)
    assert scene.limit == 600

    following = Scene(tmp_path)
    following.clamp.start()

    assert following.limit == 900
    assert not (following.state / FILE_NAME).exists()


def test_limit_of_somebody_else_is_theirs(tmp_path: Path) -> None:
    """An administrator who wrote meanwhile, or a reboot, is not overruled."""
    scene = Scene(tmp_path)
    scene.feel(Heat.HOT)
    scene.file.write_text(f"{400 * MEGA}\n")

    scene.feel(Heat.COOL)

    assert scene.limit == 400
    assert scene.writes == [600 * MEGA]


def test_lower_limit_is_left_alone(tmp_path: Path) -> None:
    """A limit below the clamp is no reason to write."""
    scene = Scene(tmp_path)
    scene.file.write_text(f"{300 * MEGA}\n")

    scene.feel(Heat.HOT, Heat.COOL)
    scene.clamp.stop()

    assert scene.writes == []


@pytest.mark.parametrize("fault", ["refuses", "ignores", "no-devfreq", "no-state-directory"])
def test_port_that_cannot_is_tried_once(tmp_path: Path, fault: str) -> None:
    """It is told and counted, and the device works on."""
    scene = Scene(tmp_path)
    tries: list[int] = []

    def refuse(path: str, hertz: int) -> None:
        tries.append(hertz)
        if fault == "refuses":
            raise ClampError(f"{path}: Input/output error (5)")

    clamp = Clamp(scene.host, scene.state, ratio=0.6, write_limit=refuse)
    if fault == "no-devfreq":
        scene.file.unlink()
    if fault == "no-state-directory":
        scene.state.rmdir()
    for _ in range(3):
        clamp.step({scene.npu.id: scene.npu}, {scene.npu.id: Heat.HOT})
    clamp.stop()

    assert len(tries) <= 1
    assert clamp.failures >= 1
    assert set(clamp.problems) == {scene.npu.unit}


def test_unreadable_note_is_no_obstacle(tmp_path: Path) -> None:
    """Half a file is as good as none."""
    scene = Scene(tmp_path)
    (scene.state / FILE_NAME).write_text('{"fdab0000.npu": [1')

    scene.clamp.start()

    assert scene.writes == []


def test_write_that_fails_says_where(tmp_path: Path) -> None:
    """Path and errno."""
    with pytest.raises(ClampError, match=r"gone: No such file or directory \(2\)"):
        write(str(tmp_path / "gone"), 1)


@given(
    steps=st.lists(st.integers(1, 1000), min_size=1),
    maximum=st.integers(1, 1000),
    ratio=st.floats(0.01, 0.99),
)
def test_target_is_a_step_below_the_limit(steps: list[int], maximum: int, ratio: float) -> None:
    """Never a number the clock does not have, never a raise."""
    target = target_hertz(steps, maximum, ratio)

    assert target is None or (target in steps and target < maximum)


def test_what_is_wanted() -> None:
    """By state; in between it stays as it is."""
    for clamped in (True, False):
        assert wanted(Heat.HOT, clamped=clamped)
        assert not wanted(Heat.WARM, clamped=clamped)
        assert wanted(Heat.RECOVERING, clamped=clamped) is clamped

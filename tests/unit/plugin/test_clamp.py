"""The clock of a warm device moves in steps and is always given back."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu import catalogue, heat
from npu.heat import Heat
from npu.host import Host
from npu.layout import expand
from npu.scan import scan
from npu.thresholds import Settings
from npu.tree import materialise
from plugin.clamp import FILE_NAME, Clamp, ClampError, ceiling, table, write
from plugin.limiter import Limit, Pace
from plugin.thermometer import Heated

MEGA = 1_000_000
LIMITS = Settings().resolve(model="rk3588")
PACE = Pace()
#: Of an RK3588: the limit rises below 68 °C, rests, and falls from 76 °C on.
COOL, BETWEEN, CROWDED = 60.0, 72.0, 77.0


def heated(state: Heat, celsius: float) -> Heated:
    """Return a whole device in a state, at a filtered temperature."""
    machine = heat.start(0.0)
    signal = replace(machine.signal, smoothed_celsius=celsius)
    machine = replace(machine, state=state, starting=False, valid_at=1e9, signal=signal)
    return Heated(machine=machine, limit=Limit(), slots=1, thresholds=LIMITS)


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
        self.clamp = Clamp(self.host, self.state, ratio=0.6, pace=PACE, write_limit=self.write)
        self.now = 0.0

    def write(self, path: str, hertz: int) -> None:
        """Write as the product does, and remember."""
        self.writes.append(hertz // MEGA)
        write(path, hertz)

    def feel(self, state: Heat, celsius: float = COOL, *, seconds: float = 0.0) -> None:
        """Stay in a state for some time, looking every five seconds."""
        until = self.now + seconds
        while True:
            step = {self.npu.id: heated(state, celsius)}
            self.clamp.step({self.npu.id: self.npu}, step, self.now)
            if self.now >= until:
                return
            self.now += 5.0

    @property
    def file(self) -> Path:
        """The limit, at its place in the tree."""
        unit = self.npu.unit
        return self.root / f"sys/class/devfreq/{unit}/max_freq"

    @property
    def limit(self) -> int:
        """The limit in MHz."""
        return int(self.file.read_text()) // MEGA


def test_clock_falls_fast_rests_and_rises_slowly(tmp_path: Path) -> None:
    """A step per 30 s while crowded, none between, one per 120 s while cool; at last none held."""
    scene = Scene(tmp_path)

    scene.feel(Heat.COOL, seconds=60)
    assert scene.writes == []
    scene.feel(Heat.WARM, CROWDED, seconds=35)
    assert scene.writes == [900, 800]
    scene.feel(Heat.WARM, BETWEEN, seconds=3600)
    assert scene.limit == 800
    held = scene.clamp.clamped(scene.npu)
    assert held is not None
    assert held.original_hertz == 1000 * MEGA
    scene.feel(Heat.COOL, seconds=125)

    assert scene.writes == [900, 800, 900, 1000]
    assert scene.clamp.clamped(scene.npu) is None
    assert not (scene.state / FILE_NAME).exists()


def test_hot_is_the_lowest_at_once_and_comes_back_by_steps(tmp_path: Path) -> None:
    """Down to the part that is set, also in critical, where a slot would be taken away."""
    scene = Scene(tmp_path)

    scene.feel(Heat.HOT, 81.0)
    assert scene.limit == 600
    scene.feel(Heat.CRITICAL, 89.0, seconds=60)
    assert scene.limit == 600
    scene.feel(Heat.RECOVERING, COOL, seconds=115)
    assert scene.limit == 600
    scene.feel(Heat.RECOVERING, COOL, seconds=600)

    assert scene.writes == [600, 700, 800, 900, 1000]


def test_stop_releases(tmp_path: Path) -> None:
    """Also when the plugin is uninstalled on a hot day."""
    scene = Scene(tmp_path)
    scene.feel(Heat.HOT, 81.0)

    scene.clamp.stop()
    scene.feel(Heat.HOT, 81.0)

    assert scene.limit == 1000


@pytest.mark.parametrize("dies_at", [1, 2, 3])
def test_killed_plugin_is_mended_by_the_next(tmp_path: Path, dies_at: int) -> None:
    """At whichever write; the first limit is given back, also one below the hardware's."""
    scene = Scene(tmp_path)
    scene.file.write_text(f"{900 * MEGA}\n")
    writes: list[int] = []

    def killed(path: str, hertz: int) -> None:
        writes.append(hertz)
        if len(writes) == dies_at:
            raise KeyboardInterrupt
        write(path, hertz)

    scene.clamp = Clamp(scene.host, scene.state, ratio=0.6, pace=PACE, write_limit=killed)
    with pytest.raises(KeyboardInterrupt):
        scene.feel(Heat.WARM, CROWDED, seconds=150)

    following = Scene(tmp_path)
    following.clamp.start()

    assert following.limit == 900
    assert not (following.state / FILE_NAME).exists()


@pytest.mark.parametrize("theirs", [400, 950])
def test_limit_of_somebody_else_is_theirs(tmp_path: Path, theirs: int) -> None:
    """An administrator who wrote meanwhile is not overruled before the next heat."""
    scene = Scene(tmp_path)
    scene.feel(Heat.HOT, 81.0)
    scene.file.write_text(f"{theirs * MEGA}\n")

    scene.feel(Heat.HOT, 81.0, seconds=60)
    scene.feel(Heat.COOL, seconds=600)
    assert scene.limit == theirs
    assert scene.writes == [600]
    assert not (scene.state / FILE_NAME).exists()

    scene.feel(Heat.HOT, 81.0)
    scene.clamp.stop()
    assert scene.limit == theirs


def test_lower_limit_is_left_alone(tmp_path: Path) -> None:
    """A limit below every step is no reason to write."""
    scene = Scene(tmp_path)
    scene.file.write_text(f"{300 * MEGA}\n")

    scene.feel(Heat.HOT, 81.0)
    scene.feel(Heat.COOL)
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

    scene.clamp = Clamp(scene.host, scene.state, ratio=0.6, pace=PACE, write_limit=refuse)
    if fault == "no-devfreq":
        scene.file.unlink()
    if fault == "no-state-directory":
        scene.state.rmdir()
    scene.feel(Heat.HOT, 81.0, seconds=15)
    scene.clamp.stop()

    assert len(tries) <= 1
    assert scene.clamp.failures >= 1
    assert set(scene.clamp.problems) == {scene.npu.unit}


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
    ratio=st.floats(0.01, 0.99),
    slots=st.none() | st.integers(0, 1000),
)
def test_ceiling_is_a_step_of_the_clock(steps: list[int], ratio: float, slots: int | None) -> None:
    """Never a number the clock does not have; lower limits never give higher clocks."""
    clocks = table(steps, ratio)
    assert clocks[-1] == max(steps)
    assert clocks[0] == min(steps) or clocks[0] <= ratio * max(steps)

    allowed = ceiling(clocks, Limit(slots=slots))
    assert allowed is None or allowed in clocks
    if slots is not None and slots < len(clocks):
        lower = ceiling(clocks, Limit(slots=max(0, slots - 1)))
        assert lower is not None
        assert allowed is not None
        assert lower <= allowed

"""The service finds the NPU's zone among others and tells of changes only."""

from pathlib import Path

from inference.heat import Heat
from inference.throttle import Limits
from npu.host import Host


def zone(root: Path, index: int, kind: str, celsius: str) -> Path:
    """Make a thermal zone; return the file with its temperature."""
    folder = root / f"sys/class/thermal/thermal_zone{index}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "type").write_text(f"{kind}\n")
    (folder / "temp").write_text(f"{celsius}\n")
    return folder / "temp"


def test_changes_are_told_once(tmp_path: Path) -> None:
    """The NPU's own zone counts, whatever the others say; silence and nonsense change nothing."""
    now = 0.0
    told: list[bool] = []
    zone(tmp_path, 0, "soc-thermal", "95000")
    file = zone(tmp_path, 6, "npu-thermal", "60000")
    heat = Heat(Host(tmp_path), Limits(hold_seconds=5), told.append, monotonic=lambda: now)

    heat.look()
    assert (heat.celsius, told) == (60.0, [])
    for reading in ("80000", "81000", "999000", "none"):
        file.write_text(reading)
        heat.look()
    assert (heat.celsius, told) == (None, [True])
    file.write_text("50000")
    heat.look()
    now = 6.0
    heat.look()
    assert told == [True, False]


def test_a_board_without_a_zone(tmp_path: Path) -> None:
    """There is no temperature, and nothing is told."""
    told: list[bool] = []
    heat = Heat(Host(tmp_path), Limits(), told.append)
    heat.look()
    assert (heat.celsius, told) == (None, [])

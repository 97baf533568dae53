"""Reads stay inside the root, are bounded, and fail with a type."""

import errno
import os
from pathlib import Path

import pytest

from npu.errors import DeniedError, ImplausibleError, MissingError, TransientError, read_error
from npu.host import READ_LIMIT_BYTES, Host


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("secret\n")
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    (path / "sys/class").mkdir(parents=True)
    return path


@pytest.mark.parametrize("way", ["absolute", "dots", "directory", "chain"])
def test_a_hostile_link_stays_inside_the_root(root: Path, secret: Path, way: str) -> None:
    """Neither an absolute target nor dots nor a linked directory lead out of the tree."""
    link = root / "sys/class/load"
    if way == "absolute":
        link.symlink_to(secret)
        path = "/sys/class/load"
    elif way == "dots":
        link.symlink_to("../../../secret")
        path = "/sys/class/load"
    elif way == "directory":
        link.symlink_to(secret.parent)
        path = "/sys/class/load/secret"
    else:
        (root / "sys/hop").symlink_to("/..")
        link.symlink_to("../hop/../../secret")
        path = "/sys/class/load"
    host = Host(root)
    with pytest.raises(MissingError):
        host.read(path)
    assert not host.exists(path)
    assert host.file_identity(path) is None


def test_a_relative_root_counts_from_the_current_directory(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A root typed by hand means what a shell means by it, also after a change of directory."""
    (root / "sys/value").write_text("7\n")
    monkeypatch.chdir(root.parent)
    host = Host(root.name)
    monkeypatch.chdir("/")
    assert host.root == str(root)
    assert host.read("/sys/value") == b"7\n"


def test_dots_in_a_path_stay_inside_the_root(root: Path, secret: Path) -> None:
    """A path built from file content cannot climb."""
    with pytest.raises(MissingError):
        Host(root).read("/sys/../../secret")


def test_absolute_links_lead_to_the_board_s_own_files(root: Path) -> None:
    """An absolute link inside a mounted tree means the tree's root."""
    (root / "value").write_text("7\n")
    (root / "sys/class/value").symlink_to("/value")
    assert Host(root).read_integer("/sys/class/value") == 7
    assert Host(root).real_path("/sys/class/value") == "/value"


def test_links_in_a_circle_are_transient(root: Path) -> None:
    """A circle of links is a read failure, not an endless loop, and not an existing file."""
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    host = Host(root)
    with pytest.raises(TransientError, match="ELOOP"):
        host.read("/a")
    assert not host.exists("/a")
    with pytest.raises(TransientError):
        host.names("/a")


def test_a_read_is_bounded(root: Path) -> None:
    """A file without end gives one bounded piece."""
    (root / "big").write_bytes(b"x" * 100_000)
    host = Host(root)
    assert len(host.read("/big")) == READ_LIMIT_BYTES
    assert sum(map(len, host.chunks("/big", 1000, 5500))) == 5500


def test_a_text_that_may_be_cut_is_implausible(root: Path) -> None:
    """The first half of a list of cores is not a smaller number of cores."""
    (root / "long").write_bytes(b"x" * READ_LIMIT_BYTES)
    (root / "fits").write_bytes(b"x" * (READ_LIMIT_BYTES - 1))
    host = Host(root)
    assert len(host.read_text("/fits")) == READ_LIMIT_BYTES - 1
    with pytest.raises(ImplausibleError, match="less than 4096 bytes"):
        host.read_text("/long")


def test_a_directory_or_fifo_has_no_chunks(root: Path) -> None:
    """Only regular files are scanned."""
    os.mkfifo(root / "fifo")
    host = Host(root)
    assert list(host.chunks("/sys", 10, 100)) == []
    assert list(host.chunks("/fifo", 10, 100)) == []
    with pytest.raises(MissingError):
        list(host.chunks("/absent", 10, 100))


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"12a\n", b"0x10\n", b"1 2\n", b"\xff\n", b"--1\n", b"9" * 40]
)
def test_what_is_no_integer_is_implausible(root: Path, content: bytes) -> None:
    """Only a plain decimal number is one."""
    (root / "value").write_bytes(content)
    with pytest.raises(ImplausibleError):
        Host(root).read_integer("/value")


def test_integers_may_be_negative(root: Path) -> None:
    """Sensors go below zero."""
    (root / "value").write_bytes(b"-5000\n")
    assert Host(root).read_integer("/value") == -5000


def test_a_missing_directory_has_no_names(root: Path) -> None:
    """Absent by design is not an error; neither is a file where a directory was expected."""
    (root / "file").touch()
    host = Host(root)
    assert host.names("/absent") == []
    assert host.names("/file") == []
    assert host.names("/") == ["file", "sys"]


def test_device_number_looks_at_the_inode_only(root: Path) -> None:
    """A regular file is no device; a missing one is an error."""
    (root / "file").touch()
    host = Host(root)
    assert host.device_number("/file") is None
    assert Host("/").device_number("/dev/null") == (1, 3)
    with pytest.raises(MissingError):
        host.device_number("/absent")


def test_node_prefix_is_what_the_kubelet_sees(root: Path) -> None:
    """A simulated board lies somewhere else on the node."""
    assert Host(root, "/var/lib/board/").on_node("/dev/x") == "/var/lib/board/dev/x"
    assert Host(root).on_node("/dev/x") == "/dev/x"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, MissingError),
        (errno.ENODEV, MissingError),
        (errno.ENXIO, MissingError),
        (errno.EACCES, DeniedError),
        (errno.EPERM, DeniedError),
        (errno.EAGAIN, TransientError),
        (errno.EIO, TransientError),
    ],
)
def test_errors_are_typed_and_name_path_and_errno(number: int, kind: type[Exception]) -> None:
    """The message alone tells which file and which errno."""
    error = read_error("/sys/x", OSError(number, "text"))
    assert type(error) is kind
    assert "/sys/x" in str(error)
    assert errno.errorcode[number] in str(error)


def test_foreign_content_is_cut_and_escaped() -> None:
    """A hostile file can neither fill a log nor write to a terminal."""
    error = ImplausibleError("/sys/x", "\x1b[31m" + "x" * 5000, "a number")
    assert len(str(error)) < 300
    assert "\x1b" not in str(error)


def test_proc_may_be_elsewhere(root: Path, tmp_path: Path) -> None:
    """The container's own procfs stands for the board's, and links lead back into the root."""
    proc = tmp_path / "container-proc"
    (proc / "rknpu").mkdir(parents=True)
    (proc / "rknpu/load").write_text("NPU load:  7%\n")
    (proc / "out").symlink_to("/sys/class/inside")
    (root / "sys/class/inside").write_text("9\n")
    host = Host(root, proc=proc)

    assert host.read_text("/proc/rknpu/load") == "NPU load:  7%\n"
    assert host.names("/proc") == ["out", "rknpu"]
    assert host.read_text("/proc/out") == "9\n"
    assert host.real_path("/proc/out") == "/sys/class/inside"
    assert host.real_path("/proc/rknpu") == "/proc/rknpu"
    with pytest.raises(MissingError):
        Host(root).read("/proc/rknpu/load")

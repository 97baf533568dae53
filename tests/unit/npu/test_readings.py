"""Readings of a board: what they say, how they fail, and which files they must never open."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from npu import thermal
from npu.errors import DeniedError, ImplausibleError, MissingError, NpuError, TransientError
from npu.host import Host, read_bounded
from npu.model import Clock
from npu.report import as_data
from npu.scan import driver_of, scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.npu.conftest import MakeBoard

LOAD = "/sys/kernel/debug/rknpu/load"
POWER = "/sys/kernel/debug/rknpu/power"
DEVFREQ = "/sys/devices/platform/fdab0000.npu/devfreq/fdab0000.npu"


def _failing(number: int, *suffixes: str) -> object:
    def read(path: str, limit: int) -> bytes:
        if path.endswith(suffixes):
            raise OSError(number, os.strerror(number), path)
        return read_bounded(path, limit)

    return read


def _load(host: Host) -> list[float]:
    (npu,) = scan(host).npus
    return [core.ratio for core in driver_of(npu).load(host, npu)]


def test_load_comes_from_debugfs_then_procfs(make_board: MakeBoard) -> None:
    """Where debugfs has no driver files, procfs has the same ones."""
    busy = b"NPU load:  Core0: 63%, Core1: 65%, Core2: 64%,\n"
    assert _load(make_board("rk3588", {LOAD: busy})) == [0.63, 0.65, 0.64]
    assert _load(make_board("rk3588-proc")) == [0.52, 0.0, 0.0]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, MissingError),
        (b"", ImplausibleError),
        (b"NPU load:  Core0:  0%, Co", ImplausibleError),
        (b"NPU load:  Core0: \xff%,\n", ImplausibleError),
        (b"NPU load:  Core0:  0%, Core1:  0%,\n", ImplausibleError),
    ],
)
def test_bad_load_after_the_scan_is_an_error(
    make_board: MakeBoard, content: bytes | None, error: type[NpuError]
) -> None:
    """Absent, empty, cut, undecodable and too few cores are each refused; none reads as idle."""
    host = make_board("rk3588")
    (npu,) = scan(host).npus
    path = Path(host.root) / LOAD.lstrip("/")
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(error):
        driver_of(npu).load(host, npu)


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.EACCES, DeniedError),
        (errno.EPERM, DeniedError),
        (errno.EAGAIN, TransientError),
        (errno.EINVAL, TransientError),
        (errno.EIO, TransientError),
        (errno.ENODEV, MissingError),
    ],
)
def test_each_errno_has_its_meaning(
    make_board: MakeBoard, number: int, error: type[NpuError]
) -> None:
    """A caller tells "not allowed" from "try again" by type."""
    board = make_board("rk3588")
    (npu,) = scan(board).npus
    host = Host(board.root, reader=_failing(number, "/load", "/temp"))  # type: ignore[arg-type]
    with pytest.raises(error):
        driver_of(npu).load(host, npu)
    (zone,) = [zone for zone in thermal.zones(host) if zone.type == "npu-thermal"]
    with pytest.raises(error):
        thermal.millicelsius(host, zone)


def test_unreadable_debugfs_leaves_the_device_without_load(make_board: MakeBoard) -> None:
    """Lockdown or a process that is not root: the NPU is there, its load is unknown."""
    board = make_board("rk3588")
    reader = _failing(errno.EACCES, "/load", "/power", "debug/rknpu/version")
    host = Host(board.root, reader=reader)  # type: ignore[arg-type]
    (npu,) = scan(host).npus
    assert npu.cores is None
    assert driver_of(npu).powered(host, npu) is None
    with pytest.raises(DeniedError):
        driver_of(npu).load(host, npu)


def test_denied_debugfs_does_not_hide_procfs(make_board: MakeBoard) -> None:
    """Procfs is world-readable, so it serves those who may not enter debugfs."""
    board = make_board("rk3588-proc", {LOAD: b"NPU load:  Core0:  1%, Core1:  1%, Core2:  1%,\n"})
    host = Host(board.root, reader=_failing(errno.EACCES, LOAD))  # type: ignore[arg-type]
    assert _load(host) == [0.52, 0.0, 0.0]


@contextmanager
def _unprivileged() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_mode_0000_is_denied(make_board: MakeBoard, tmp_path: Path) -> None:
    """A file that permits nobody is "denied", not "missing"."""
    host = make_board("rk3588")
    (npu,) = scan(host).npus
    (Path(host.root) / LOAD.lstrip("/")).chmod(0)
    for parent in (tmp_path, *list(tmp_path.parents)[:2]):
        parent.chmod(parent.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    with _unprivileged(), pytest.raises(DeniedError):
        driver_of(npu).load(host, npu)


def test_a_fifo_that_somebody_holds_open_is_transient(make_board: MakeBoard) -> None:
    """A read that would wait answers EAGAIN at once."""
    host = make_board("rk3588")
    (npu,) = scan(host).npus
    path = Path(host.root) / LOAD.lstrip("/")
    path.unlink()
    os.mkfifo(path)
    holder = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        with pytest.raises(TransientError, match="EAGAIN"):
            driver_of(npu).load(host, npu)
    finally:
        os.close(holder)
    with pytest.raises(ImplausibleError):
        driver_of(npu).load(host, npu)


def test_one_load_file_for_two_npus_is_not_attributed(make_board: MakeBoard) -> None:
    """Nobody knows whose load it is, so it is nobody's."""
    host = make_board("rk3588")
    (npu,) = scan(host).npus
    unit = Path(host.root) / "sys/devices/platform/fdaf0000.npu"
    unit.mkdir()
    (unit / "uevent").write_text("DRIVER=RKNPU\nOF_COMPATIBLE_0=rockchip,rk3588-rknpu\n")
    (Path(host.root) / "sys/bus/platform/drivers/RKNPU/fdaf0000.npu").symlink_to(
        "../../../../devices/platform/fdaf0000.npu"
    )
    with pytest.raises(MissingError, match="several NPUs"):
        driver_of(npu).load(host, npu)


def test_clock_is_what_devfreq_says(make_board: MakeBoard) -> None:
    """Present, minimum, configured maximum and hardware maximum are four facts."""
    host = make_board(
        "rk3588",
        {f"{DEVFREQ}/cur_freq": b"800000000\n", f"{DEVFREQ}/max_freq": b"900000000\n"},
    )
    (npu,) = scan(host).npus
    assert driver_of(npu).clock(host, npu) == Clock(
        current_hertz=800_000_000,
        minimum_hertz=300_000_000,
        maximum_hertz=900_000_000,
        hardware_maximum_hertz=1_000_000_000,
    )


def test_garbage_among_the_frequencies_is_no_clock(make_board: MakeBoard) -> None:
    """The highest number of a file is a clock only where a kernel could print it."""
    content = b"300000000 x 0 -5 " + b"9" * 400 + b" 900000000\n"
    host = make_board("rk3588", {f"{DEVFREQ}/available_frequencies": content})
    (npu,) = scan(host).npus
    assert driver_of(npu).clock(host, npu).hardware_maximum_hertz == 900_000_000


def test_a_clock_of_zero_is_unknown(make_board: MakeBoard) -> None:
    """Some kernels print 0 for an NPU that never ran."""
    host = make_board("rk3568")
    (npu,) = scan(host).npus
    clock = driver_of(npu).clock(host, npu)
    assert clock.current_hertz is None
    assert clock.hardware_maximum_hertz == 900_000_000


@pytest.mark.parametrize("name", ["rv1106", "rk3588-dkms"])
def test_without_devfreq_there_is_no_clock(make_board: MakeBoard, name: str) -> None:
    """A kernel without devfreq is normal."""
    host = make_board(name)
    (npu,) = scan(host).npus
    assert driver_of(npu).clock(host, npu) == Clock()


def test_a_devfreq_entry_of_another_maker_is_not_the_clock(make_board: MakeBoard) -> None:
    """The entry's name proves nothing; its device's compatible string does."""
    host = make_board("rk3588")
    (npu,) = scan(host).npus
    uevent = Path(host.root) / "sys/devices/platform/fdab0000.npu/uevent"
    uevent.write_text("DRIVER=vipcore\nOF_COMPATIBLE_0=allwinner,npu\n")
    assert driver_of(npu).clock(host, npu) == Clock()


@pytest.mark.parametrize(
    ("content", "powered"), [(b"on\n", True), (b"off\n", False), (b"maybe\n", None), (b"", None)]
)
def test_power_is_on_off_or_unknown(make_board: MakeBoard, content: bytes, powered: object) -> None:
    """Off is the normal idle state, and garbage is unknown."""
    host = make_board("rk3588", {POWER: content})
    (npu,) = scan(host).npus
    assert driver_of(npu).powered(host, npu) is powered


def test_bound_follows_the_driver_link(make_board: MakeBoard) -> None:
    """A driver that went away is seen; a hidden sysfs is not taken for that."""
    host = make_board("rk3588")
    (npu,) = scan(host).npus
    driver = driver_of(npu)
    assert driver.bound(host, npu) is True
    (Path(host.root) / "sys/bus/platform/drivers/RKNPU/fdab0000.npu").unlink()
    assert driver.bound(host, npu) is False
    assert driver.bound(Host(f"{host.root}/nowhere"), npu) is None


@pytest.mark.parametrize(
    "name", ["rk3588", "rk3568", "rv1106", "rk3588-proc", "rk3588-dkms", "rk3588-unbound"]
)
def test_looking_touches_nothing(
    make_board: MakeBoard, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A scan with all readings opens no device node, and neither ``freq`` nor ``volt``.

    Reading ``freq`` powers the NPU on, reading ``volt`` crashes some kernels, and every ioctl needs
    an open node.
    """
    host = make_board(name)
    opened: list[str] = []
    flags_seen: set[int] = set()
    original = os.open

    def recording(path: str, flags: int, *rest: int) -> int:
        opened.append(str(path).removeprefix(host.root))
        flags_seen.add(flags & (os.O_ACCMODE | os.O_CREAT | os.O_TRUNC))
        return original(path, flags, *rest)

    monkeypatch.setattr(os, "open", recording)
    inventory = scan(host)
    as_data(host, inventory)
    for npu in inventory.npus:
        driver = driver_of(npu)
        driver.load(host, npu)
        driver.clock(host, npu)
        driver.powered(host, npu)
        driver.bound(host, npu)
    for zone in thermal.zones(host):
        thermal.millicelsius(host, zone)
    thermal.cooling_devices(host)

    assert len(opened) > 10
    assert flags_seen == {os.O_RDONLY}
    assert [path for path in opened if path.startswith("/dev")] == []
    assert [path for path in opened if path.endswith(("/freq", "/volt", "/mm", "/reset"))] == []

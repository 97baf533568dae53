"""What must hold for every content of every file: the laws that both fuzzers try to break.

A target takes bytes and raises AssertionError, or anything but the typed errors, where a parser
breaks a law: the only exception is the typed one, every number is within its range, nothing that
becomes a label is long or unprintable, and no read takes more than it asked for. Hypothesis runs
the targets with every unit test, a coverage-guided fuzzer for longer (``make fuzz``).
"""

import atexit
import errno
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import yaml

from npu import catalogue, devfreq, devicetree, library, thermal
from npu.capture import describe
from npu.drivers import ascend_smi, rknpu_files
from npu.errors import BoardError, ImplausibleError, NpuError
from npu.host import READ_LIMIT_BYTES, Host, decimal, read_bounded
from npu.ids import device_of
from npu.layout import expand
from npu.model import Npu
from npu.report import as_data, as_text
from npu.scan import driver_of, scan
from npu.sysfs import compatibles, parse_uevent
from npu.tree import materialise
from thermal import exposition
from thermal.readings import WANTED, node_sample

Target = Callable[[bytes], None]

#: Longest text that may become the value of a label.
LABEL_LENGTH = 128
_ERRORS = (errno.EACCES, errno.EAGAIN, errno.EINVAL, errno.EIO, errno.ENOENT, errno.ENODEV)
_BOARDS = ("rk3588", "rk3588-rocket", "rk3568-dkms", "rv1106")


def load(data: bytes) -> None:
    """``load`` of the vendor driver is shares of a few cores, or implausible."""
    try:
        loads = rknpu_files.parse_load(_text(data))
    except ImplausibleError:
        return
    assert [each.core for each in loads] == list(range(len(loads)))
    assert 0 < len(loads) <= 32
    for each in loads:
        assert 0.0 <= each.ratio <= 1.0
        assert each.clamped is False or each.ratio == 1.0


def version(data: bytes) -> None:
    """A version is three numbers, or implausible."""
    try:
        found = rknpu_files.parse_version(_text(data))
    except ImplausibleError:
        return
    assert len(found) <= 16
    assert all(part.isascii() and part.isdigit() for part in found.split("."))
    assert found.count(".") == 2
    rknpu_files.precedes_files(found)


def integer(data: bytes) -> None:
    """A decimal integer is what a kernel could print."""
    found = decimal(_text(data))
    assert found is None or abs(found) < 10**21


def uevent(data: bytes) -> None:
    """Compatible strings of any uevent are few."""
    assert len(compatibles(parse_uevent(_text(data)))) <= 16


def device_tree(data: bytes) -> None:
    """Strings of a property have no NUL."""
    assert not any("\0" in text or not text for text in devicetree.strings(data))


def runtime_library(data: bytes) -> None:
    """A library's version is short ASCII text, wherever the file is cut into pieces."""
    whole = library.version_in([data])
    assert whole is None or (whole.isascii() and len(whole) <= 64)
    library.elf_problem(data[:READ_LIMIT_BYTES])
    library.elf_problem(data[:READ_LIMIT_BYTES], machine_bits=32)


def tool_table(data: bytes) -> None:
    """Readings in npu-smi's table are finite and in range."""
    for reading in ascend_smi.parse(_text(data)):
        for name in reading.__slots__:
            value = getattr(reading, name)
            if isinstance(value, float):
                assert math.isfinite(value)


def identifier(data: bytes) -> None:
    """An identifier has a device, or is none; a device is its own."""
    try:
        device = device_of(_text(data))
    except ValueError:
        return
    assert device_of(device) == device


def page(data: bytes) -> None:
    """A page of an exporter gives the guard finite numbers for devices with proper names."""
    sample = node_sample(exposition.parse(_text(data), WANTED))
    for device in sample.devices:
        assert device_of(device.device) == device.device
        for value in (device.celsius, device.clock_hertz):
            assert value is None or math.isfinite(value)
    assert sample.malformed >= 0


def board_file(data: bytes) -> None:
    """A board description is a board, or wrong in one line."""
    try:
        content = yaml.safe_load(_text(data))
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError):
        return
    if not isinstance(content, dict):
        return
    _check_board(content)


def tree(data: bytes) -> None:
    """Whatever files say or fail with, a scan with all readings ends and stays in range.

    The first byte chooses the board. Then follow changes: which file, how, and its content.
    """
    if not data:
        return
    root, files = _tree(_BOARDS[data[0] % len(_BOARDS)])
    host = Host(root, reader=_Reader(root, _changes(files, data[1:])))
    inventory = scan(host)
    as_text(host, inventory)
    as_data(host, inventory)
    for npu in inventory.npus:
        _check_npu(host, npu)
    for zone in thermal.zones(host):
        _check_label(zone.type)
        assert all(-40_000 <= trip.millicelsius <= 250_000 for trip in zone.trips)
        try:
            assert -20_000 <= thermal.millicelsius(host, zone) <= 130_000
        except NpuError:
            continue
    for cooling in thermal.cooling_devices(host):
        _check_label(cooling.type)
        assert cooling.state >= 0
        assert cooling.maximum_state >= 0


def captured(data: bytes) -> None:
    """Whatever files say, a capture is YAML of bounded size, and a board or wrong in one line."""
    if not data:
        return
    root, files = _tree(_BOARDS[data[0] % len(_BOARDS)])
    host = Host(root, reader=_Reader(root, _changes(files, data[1:])))
    text = describe(host, "fuzzed")
    assert len(text) < 2 * 1024 * 1024
    _check_board(yaml.safe_load(text))


#: Every target with inputs to start from.
TARGETS: dict[str, tuple[Target, tuple[bytes, ...]]] = {
    "load": (
        load,
        (
            b"NPU load:  Core0:  0%, Core1:  7%, Core2: 100%,\n",
            b"NPU load: 48%\n",
            b"NPU load: Core0: 99%, Core1: 99%, Core2: 429496%\n",
        ),
    ),
    "version": (version, (b"RKNPU driver: v0.9.8\n", b"0.9.8\n")),
    "integer": (integer, (b"1000000000", b"-20000")),
    "uevent": (uevent, (b"DRIVER=RKNPU\nOF_COMPATIBLE_0=rockchip,rk3588-rknpu\n",)),
    "device_tree": (device_tree, (b"radxa,rock-5b\0rockchip,rk3588\0",)),
    "runtime_library": (
        runtime_library,
        (b"\x7fELF\x02\x01\x01", b"librknnrt version: 2.3.2 (429f97ae6b@2025-04-09T09:11:49)"),
    ),
    "tool_table": (
        tool_table,
        (
            (
                b"+------+\n| NPU Name | Health | Power(W) Temp(C) Hugepages-Usage(page) |\n"
                b"| Chip Device | Bus-Id | AICore(%) Memory-Usage(MB) |\n+======+\n"
                b"| 0 310P3 | OK | 15.6 46 0 / 0 |\n"
                b"| 0 0 | 0000:01:00.0 | 0 1693 / 21527 |\n+------+\n"
            ),
        ),
    ),
    "identifier": (identifier, (b"npu0", b"davinci12-s3")),
    "page": (
        page,
        (
            (
                b'npu_info{device="npu0",vendor="rockchip",model="rk3588"} 1\n'
                b'npu_temperature_celsius{device="npu0",zone="npu-thermal"} 39.8\n'
                b'npu_core_busy_seconds_total{device="npu0",core="0"} 12.5\n'
            ),
        ),
    ),
    "board_file": (
        board_file,
        (
            b"name: fuzzed\ntitle: t\nevidence: e\nextends: rk3588\n",
            (
                b"name: fuzzed\ntitle: t\nevidence: e\n"
                b"devices: {a: {drm: [card0], accel: [accel0]}}\n"
                b'zones: [{type: a, millicelsius: 1}]\nnodes: {/dev/x: "1:2"}\nfiles: {/a: b}\n'
            ),
        ),
    ),
    "tree": (tree, (b"\0\0\0\5hello", b"\1\7\1\0", b"\2\3\0\4NPU ", b"\3\5\0\6-99999")),
    "captured": (captured, (b"\0\0\0\5hello", b"\1\7\1\0", b"\2\3\0\4\x00\xff\n:")),
}


def _text(data: bytes) -> str:
    return data[:READ_LIMIT_BYTES].decode("utf-8", "replace")


def _check_label(text: str | None) -> None:
    assert text is None or (len(text) <= LABEL_LENGTH and text.isprintable())


def _check_board(content: dict[str, object]) -> None:
    """A description is a board, or wrong in one line."""
    try:
        expand(catalogue.from_data("fuzzed", content))
    except BoardError as error:
        problem = str(error)
    else:
        problem = ""
    assert "\n" not in problem


def _check_npu(host: Host, npu: Npu) -> None:
    for text in (npu.model, npu.driver_version, npu.zone, npu.board):
        _check_label(text)
    assert npu.cores is None or 0 < npu.cores <= 32
    driver = driver_of(npu)
    for _ in range(2):
        try:
            loads = driver.load(host, npu)
        except NpuError:
            break
        assert all(0.0 <= each.ratio <= 1.0 for each in loads)
    clock = driver.clock(host, npu)
    for hertz in (clock.current_hertz, clock.maximum_hertz, clock.hardware_maximum_hertz):
        assert hertz is None or 0 < hertz <= devfreq.HIGHEST_HERTZ
    driver.powered(host, npu)
    driver.bound(host, npu)


@cache
def _tree(name: str) -> tuple[str, tuple[str, ...]]:
    root = tempfile.mkdtemp(prefix="fuzzed-board-")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    content = expand(catalogue.load(name))
    materialise(content, Path(root), device_nodes=False)
    return root, tuple(sorted(content.files))


def _changes(files: tuple[str, ...], data: bytes) -> dict[str, bytes | OSError]:
    """Decode changes: index of a file, kind (an errno or content), length, content."""
    changes: dict[str, bytes | OSError] = {}
    position = 0
    while position + 3 <= len(data):
        index, kind, length = data[position : position + 3]
        position += 3
        path = files[index % len(files)]
        if kind % 4 == 1:
            number = _ERRORS[length % len(_ERRORS)]
            changes[path] = OSError(number, os.strerror(number))
            continue
        # Long contents are made of short ones, so that a small input reaches the limits.
        repeat = 400 if kind % 4 == 2 else 1
        changes[path] = data[position : position + length] * repeat
        position += length
    return changes


class _Reader:
    """Reads the tree with changes, and checks that no read takes more than a page."""

    def __init__(self, root: str, changes: dict[str, bytes | OSError]) -> None:
        self._root = root
        self._changes = changes

    def __call__(self, path: str, limit: int) -> bytes:
        assert 0 < limit <= READ_LIMIT_BYTES
        change = self._changes.get(path.removeprefix(self._root))
        if isinstance(change, OSError):
            raise change
        content = read_bounded(path, limit) if change is None else change[:limit]
        assert len(content) <= limit
        return content


def seeds() -> Iterable[tuple[str, bytes]]:
    """Yield every target's name with each of its inputs."""
    for name, (_, inputs) in TARGETS.items():
        for content in inputs:
            yield name, content

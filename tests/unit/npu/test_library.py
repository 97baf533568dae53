"""Vendor libraries: found in the known places, version read from their bytes, header judged."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu import library
from npu.host import Host
from npu.layout import library_stub
from npu.model import Library
from npu.scan import scan

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.npu.conftest import MakeBoard

TEXT = b"librknnrt version: 2.3.2 (429f97ae6b@2025-04-09T09:09:27)"


@pytest.mark.parametrize(
    ("content", "version"),
    [
        (TEXT, "2.3.2"),
        (b"\0librknnrt version: 1.5.2 (c6b7b351a@2023-08-23T15:29:04)\0", "1.5.2"),
        (b"librknnmrt version: 2.3.2 (429f97ae6b@2025-04-09T09:11:49)", "2.3.2"),
        (b"librknnrt version: 2.0.0b0 (35a6907d79@2024-03-24T10:31:14)", "2.0.0b0"),
        (b"rkllm-runtime version: 1.1.2, rknpu driver version", "1.1.2"),
        (b"librknnrt version: %s (%s)", None),
        (b"", None),
    ],
)
def test_the_version_is_a_text_in_the_file(content: bytes, version: str | None) -> None:
    """The library says its own version; a format string is none."""
    assert library.version_in([content]) == version


@given(st.integers(0, len(TEXT)), st.binary(max_size=500), st.binary(max_size=500))
def test_a_version_across_two_pieces_is_found(cut: int, before: bytes, after: bytes) -> None:
    """Reading piece by piece loses nothing."""
    assert library.version_in([before + TEXT[:cut], TEXT[cut:] + after]) == "2.3.2"


def test_the_first_directory_wins_and_extra_paths_come_first(tmp_path: Path) -> None:
    """What a loader would find is what is reported."""
    for directory, version in (
        ("usr/lib", "1.6.0"),
        ("usr/local/lib", "1.5.2"),
        ("opt/x", "2.3.2"),
    ):
        path = tmp_path / directory / "librknnrt.so"
        path.parent.mkdir(parents=True)
        path.write_bytes(library_stub("/librknnrt.so", version))
    host = Host(tmp_path)
    assert library.find(host, "rknpu") == (
        Library(name="librknnrt.so", path="/usr/lib/librknnrt.so", version="1.6.0"),
    )
    (found,) = library.find(host, "rknpu", ["/opt/x/"])
    assert (found.path, found.version) == ("/opt/x/librknnrt.so", "2.3.2")
    assert library.find(host, "rocket") == ()


def test_a_version_deep_in_a_large_file_is_found(tmp_path: Path) -> None:
    """Real libraries have megabytes; the text may lie at the end."""
    path = tmp_path / "usr/lib/librknnrt.so"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\0" * (3 << 20) + TEXT)
    (found,) = library.find(Host(tmp_path), "rknpu")
    assert found.version == "2.3.2"


def test_a_replaced_library_is_read_again(tmp_path: Path) -> None:
    """An upgrade on the running board is seen at the next scan."""
    path = tmp_path / "usr/lib/librknnrt.so"
    path.parent.mkdir(parents=True)
    host = Host(tmp_path)
    path.write_bytes(library_stub("/librknnrt.so", "1.6.0"))
    assert [item.version for item in library.find(host, "rknpu")] == ["1.6.0"]
    new = path.with_name("new")
    new.write_bytes(library_stub("/librknnrt.so", "2.3.20"))
    new.replace(path)
    assert [item.version for item in library.find(host, "rknpu")] == ["2.3.20"]


def test_a_link_to_a_library_counts_and_a_dangling_one_does_not(tmp_path: Path) -> None:
    """Distributions link the versioned file."""
    directory = tmp_path / "usr/lib"
    directory.mkdir(parents=True)
    (directory / "librknnrt.so").symlink_to("librknnrt.so.2")
    assert library.find(Host(tmp_path), "rknpu") == ()
    (directory / "librknnrt.so.2").write_bytes(TEXT)
    (found,) = library.find(Host(tmp_path), "rknpu")
    assert (found.path, found.version) == ("/usr/lib/librknnrt.so", "2.3.2")


def test_the_scan_lists_libraries(make_board: MakeBoard) -> None:
    """A board of the catalogue comes with its runtime."""
    (npu,) = scan(make_board("rk3588")).npus
    assert [item.version for item in npu.libraries] == ["2.3.2"]


def _header(*, bits: int = 2, order: int = 1, kind: int = 3, machine: int = 183) -> bytes:
    return b"\x7fELF" + bytes([bits, order, 1]).ljust(12, b"\0") + struct.pack("<HH", kind, machine)


def test_a_shared_library_for_aarch64_passes() -> None:
    """The header of a real one, of the simulated one, and of a 32-bit board's."""
    assert library.elf_problem(_header()) is None
    assert library.elf_problem(library_stub("/librknnrt.so", "2.3.2")) is None
    assert library.elf_problem(_header(bits=1, machine=40), machine_bits=32) is None


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (b"", "only 0 bytes"),
        (_header()[:10], "only 10 bytes"),
        (b"#!/bin/sh\n" * 4, "not an ELF"),
        (_header(machine=62), "another machine"),
        (_header(bits=1, machine=40), "64-bit"),
        (_header(order=2), "little-endian"),
        (_header(kind=2), "not a shared library"),
    ],
)
def test_other_files_are_named_for_what_is_wrong(header: bytes, problem: str) -> None:
    """An administrator reads which mistake was made."""
    found = library.elf_problem(header)
    assert found is not None
    assert problem in found


@given(st.binary(max_size=64))
def test_no_header_makes_the_check_fail(header: bytes) -> None:
    """Any bytes get an answer."""
    library.elf_problem(header)


@pytest.mark.parametrize(
    ("name", "version", "driver", "needed"),
    [
        ("librkllmrt.so", "1.2.1", "0.9.7", "0.9.8"),
        ("librkllmrt.so", "1.2.1b1", "0.9.8", None),
        ("librkllmrt.so", "1.1.4", "0.9.6", "0.9.7"),
        ("librkllmrt.so", "1.0.1", "0.9.2", None),
        ("librkllmrt.so", None, "0.9.2", None),
        ("librkllmrt.so", "1.2.1", None, None),
        ("librknnrt.so", "2.3.2", "0.7.2", None),
    ],
)
def test_driver_that_a_library_asks_for(
    name: str, version: str | None, driver: str | None, needed: str | None
) -> None:
    """A minimum, known for some libraries; what is not known is no complaint."""
    item = Library(name=name, path=f"/usr/lib/{name}", version=version)

    assert library.driver_too_old(item, driver) == needed


def test_an_endless_number_is_no_version() -> None:
    """A version becomes a label, so a file cannot make it long."""
    text = b"librknnrt version: 2." + b"2" * 90 + b".0 (429f97ae6b@2025)"
    assert library.version_in([text]) is None

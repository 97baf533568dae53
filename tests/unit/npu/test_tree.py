"""Files of a simulated board are seen as they were or complete."""

import resource
from pathlib import Path

import pytest

from npu.tree import write_file


def test_a_write_that_stops_half_way_changes_nothing(tmp_path: Path) -> None:
    """A full disk takes a part of a file: readers go on seeing the old one, and nothing is left."""
    place = tmp_path / "load"
    write_file(place, b"old\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: .*/load"):
            write_file(place, b"NPU load:  Core0: 10%,\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert place.read_bytes() == b"old\n"
    assert list(tmp_path.iterdir()) == [place]

"""Files that are complete or as they were."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plugin.files import replace_file


@contextmanager
def no_room() -> Iterator[None]:
    """Let files have ten bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("durable", [False, True])
def test_write_that_fails_leaves_nothing(tmp_path: Path, *, durable: bool) -> None:
    """What found room on a full disk would keep a shorter file, as of fewer claims, from it."""
    place = tmp_path / "claims.json"
    replace_file(place, b"old", mode=0o600, durable=durable)
    with no_room(), pytest.raises(OSError, match="File too large"):
        replace_file(place, b"longer than ten bytes", mode=0o600, durable=durable)

    assert place.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [place]
    assert place.stat().st_mode & 0o777 == 0o600
    with no_room():
        replace_file(place, b"", mode=0o600, durable=durable)
    assert place.read_bytes() == b""


def test_what_a_killed_writer_left_is_no_obstacle(tmp_path: Path) -> None:
    """The next write begins anew."""
    place = tmp_path / "claims.json"
    place.with_suffix(".part").write_text("half of a longer one")
    replace_file(place, b"whole", mode=0o644)
    assert place.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [place]

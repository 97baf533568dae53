"""Locks between processes."""

import threading
from pathlib import Path

from ci.lock import exclusive


def test_a_second_holder_waits(tmp_path: Path) -> None:
    """Two bodies under one lock never overlap, even when the first deletes the lock file."""
    path = tmp_path / "sub" / "lock"
    steps: list[str] = []
    held = threading.Event()

    def second() -> None:
        held.wait()
        with exclusive(path, reason="a test"):
            steps.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with exclusive(path, reason="a test"):
        held.set()
        thread.join(0.2)
        steps.append("first")
        path.unlink()
    thread.join(10)
    assert steps == ["first", "second"]

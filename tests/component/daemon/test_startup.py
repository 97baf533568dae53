"""Programs end when told to, at any moment of their life, and talk to closed pipes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
SLOW = "import pathlib, time\npathlib.Path({mark!r}).touch()\ntime.sleep(60)\n"


@pytest.mark.parametrize("program", ["plugin", "exporter", "simulator", "thermal"])
def test_service_that_still_imports_ends_at_once_as_pid_1(program: str, tmp_path: Path) -> None:
    """The kernel gives PID 1 no default action for SIGTERM; a Pod must not wait out its grace."""
    mark = tmp_path / "importing"
    # Every service imports it.
    (tmp_path / "msgspec.py").write_text(SLOW.format(mark=str(mark)))
    outer = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-m", program, "--check"],
        cwd=CHECKOUT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    try:
        deadline = time.monotonic() + 20
        while not mark.exists():
            assert outer.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        task = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        os.kill(int(task.read_text()), signal.SIGTERM)

        assert outer.wait(10) == 128 + signal.SIGTERM
    finally:
        outer.kill()
        outer.wait()


@pytest.mark.parametrize(
    "command", [["npu", "boards"], ["exporter", "--once", "--root=/nowhere"]], ids=" ".join
)
def test_closed_pipe_ends_a_program_without_a_traceback(command: list[str]) -> None:
    """`python -m npu scan | head -1` prints one line and nothing else."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=CHECKOUT,
            stdout=closed,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert b"Traceback" not in done.stderr
    assert b"BrokenPipe" not in done.stderr
    assert done.returncode == -signal.SIGPIPE


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_guard_says_what_it_is_without_its_api_client(argument: str) -> None:
    """The client takes a second to import, five on a slow board."""
    script = (
        "import sys\nfrom thermal.main import main\n"
        f"try:\n    main([{argument!r}])\nexcept SystemExit:\n    pass\n"
        "sys.exit(' '.join({'kubernetes', 'urllib3'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert done.stderr.strip() == ""

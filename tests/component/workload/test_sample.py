"""The sample workload says what it sees, to people and to scripts."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

SAMPLE = Path(__file__).resolve().parents[3] / "images/workload/sample.py"
FLAGS = ("-I", "-u", "-B")


def once(**environment: str) -> tuple[int, str, dict[str, list[dict[str, object]]]]:
    """Return exit code, first line, and the JSON lines by event."""
    done = subprocess.run(
        [sys.executable, *FLAGS, str(SAMPLE), "--once"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    first, *rest = done.stdout.splitlines()
    events: dict[str, list[dict[str, object]]] = {}
    for line in map(json.loads, rest):
        events.setdefault(line["event"], []).append(line)
    return done.returncode, first, events


def test_granted_device_is_opened(tmp_path: Path) -> None:
    """Exit code 0, a readable line, and what the platform gave."""
    (tmp_path / "librknnrt.so").touch()

    code, line, events = once(
        RKNN_NPU_DEVICE="/dev/null", NPU_DEVICE_IDS="npu0", NPU_LIBRARY_DIR=str(tmp_path)
    )

    assert code == 0
    assert line == "NPU npu0: opened /dev/null."
    assert events["device"][0]["path"] == "/dev/null"
    assert events["device"][0]["opened"] is True
    assert events["library"][0]["files"] == ["librknnrt.so"]
    assert events["environment"][0]["variables"] == {
        "RKNN_NPU_DEVICE": "/dev/null",
        "NPU_DEVICE_IDS": "npu0",
        "NPU_LIBRARY_DIR": str(tmp_path),
    }
    assert events["result"] == [{"event": "result", "ok": True, "devices": "npu0"}]


def test_device_that_does_not_open_is_explained(tmp_path: Path) -> None:
    """Exit code 1, the errno by name and what it means."""
    code, line, events = once(RKNN_NPU_DEVICE=str(tmp_path / "card1"), NPU_DEVICE_IDS="npu0")

    assert code == 1
    assert "ENOENT" in line
    assert "not in this container" in line
    assert events["result"][0]["ok"] is False


def test_it_holds_its_device_until_stopped() -> None:
    """Without --once it goes on, and SIGTERM ends it with 0."""
    with subprocess.Popen(
        [sys.executable, *FLAGS, str(SAMPLE)],
        env={"RKNN_NPU_DEVICE": "/dev/null", "NPU_DEVICE_IDS": "npu0"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if '"result"' in line:
                break
        assert process.poll() is None

        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=10) == 0


def test_without_an_npu_it_says_how_to_ask() -> None:
    """The line names the resource and where it goes."""
    code = f"import sys; sys.path.insert(0, {os.fspath(SAMPLE.parent)!r}); import sample; "
    code += "print(sample.summary(None, None))"

    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )

    assert "No NPU in this container" in done.stdout
    assert "rockchip.com/npu: 1" in done.stdout

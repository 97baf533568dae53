"""The command line: what people and scripts see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from npu.__main__ import main

if TYPE_CHECKING:
    from tests.unit.npu.conftest import MakeBoard


def test_json_has_facts_readings_and_node_paths(
    make_board: MakeBoard, capsys: pytest.CaptureFixture[str]
) -> None:
    """One object with exactly two lists; device nodes are named as the kubelet sees them."""
    host = make_board("rk3588")
    assert main(["scan", "--root", host.root, "--node-prefix", "/board", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert set(data) == {"npus", "refused"}
    (npu,) = data["npus"]
    expected = {
        "id": "npu0",
        "vendor": "rockchip",
        "model": "rk3588",
        "driver": "rknpu",
        "mode": "drm",
        "driver_version": "0.9.8",
        "cores": 3,
        "nodes": [
            "/board/dev/dri/by-path/platform-fdab0000.npu-card",
            "/board/dev/dri/by-path/platform-fdab0000.npu-render",
        ],
        "load": [0.0, 0.0, 0.0],
        "temperature_celsius": 39.769,
        "zone": "npu-thermal",
        "board": "Radxa ROCK 5B",
        "clock_hertz": 1_000_000_000,
        "powered": False,
        "simulated": True,
    }
    assert {key: npu[key] for key in expected} == expected


def test_json_says_null_for_what_cannot_be_read(
    make_board: MakeBoard, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown is neither 0 nor a missing key."""
    host = make_board(
        "rk3588",
        {
            "/sys/kernel/debug": None,
            "/sys/class/thermal": None,
            "/sys/class/devfreq": None,
            "/sys/module": None,
            "/simulated": None,
        },
    )
    assert main(["scan", "--root", host.root, "--json"]) == 0
    (npu,) = json.loads(capsys.readouterr().out)["npus"]
    unknown = [
        "load",
        "cores",
        "temperature_celsius",
        "zone",
        "clock_hertz",
        "powered",
        "driver_version",
    ]
    assert [npu[key] for key in unknown] == [None] * len(unknown)
    assert npu["simulated"] is False


def test_refused_hardware_is_listed(
    make_board: MakeBoard, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason is a code for programs and a sentence for people; the exit code is 0."""
    host = make_board("rk3588-unbound")
    assert main(["scan", "--root", host.root, "--json"]) == 0
    (refused,) = json.loads(capsys.readouterr().out)["refused"]
    assert (refused["what"], refused["why"]) == ("fdab0000.npu", "driver_not_bound")
    assert main(["scan", "--root", host.root]) == 0
    text = capsys.readouterr().out
    assert "no usable NPU" in text
    assert refused["detail"] in text


def test_the_table_is_readable(make_board: MakeBoard, capsys: pytest.CaptureFixture[str]) -> None:
    """Columns line up, and what is not usual is said."""
    assert main(["scan", "--root", make_board("rk3568").root]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        *("ID", "MODEL", "DRIVER", "VERSION", "CORES", "LOAD", "TEMPERATURE", "CLOCK")
    ]
    assert lines[1].split() == [
        "npu0",
        "rk3568",
        "rknpu",
        "(drm)",
        "0.8.2",
        "1",
        "0%",
        "45.6",
        "°C",
        "-",
    ]
    assert lines[0].index("CLOCK") == lines[1].index("-")
    assert any("no sensor at the NPU" in line for line in lines)
    assert lines[-1] == "this board is simulated"


def test_a_vanished_zone_is_no_temperature(
    make_board: MakeBoard, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sensor that fails gives null, and the rest of the report stays."""
    host = make_board("rk3588", {"/sys/devices/virtual/thermal/thermal_zone6/temp": b"215000\n"})
    assert main(["scan", "--root", host.root, "--json"]) == 0
    (npu,) = json.loads(capsys.readouterr().out)["npus"]
    assert npu["temperature_celsius"] is None
    assert npu["zone"] == "npu-thermal"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_name_that_is_not_utf_8_is_shown_escaped(
    make_board: MakeBoard, capsys: pytest.CaptureFixture[str], form: list[str]
) -> None:
    """A strange name in sysfs is shown, whatever the terminal can print."""
    host = make_board("rk3588-unbound")
    device = Path(os.fsdecode(os.fsencode(host.root) + b"/sys/bus/platform/devices/\xff.npu"))
    device.mkdir()
    (device / "uevent").write_text("OF_COMPATIBLE_0=rockchip,rk3588-rknpu\n")

    assert main(["scan", "--root", host.root, *form]) == 0
    assert "\\udcff.npu" in capsys.readouterr().out


def test_boards_are_listed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the list names can be simulated, and a scan finds it."""
    assert main(["boards"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert "rk3576" in names
    assert main(["simulate", "rk3576", str(tmp_path / "board")]) == 0
    assert main(["scan", "--root", str(tmp_path / "board")]) == 0
    assert "Radxa ROCK 4D" in capsys.readouterr().out


def test_mistakes_exit_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong board or a wrong option is the caller's mistake, in one line."""
    assert main(["simulate", "rk9999", str(tmp_path)]) == 2
    assert "no board 'rk9999'" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["scan", "--colour"])
    assert caught.value.code == 2


def test_a_tree_that_cannot_be_written_exits_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file where a directory is needed is named."""
    (tmp_path / "file").touch()
    assert main(["simulate", "rk3588", str(tmp_path / "file")]) == 1
    assert "file" in capsys.readouterr().err


def test_capture_in_a_container(
    make_board: MakeBoard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The board's /proc may be another one than below the root, and names can be added."""
    host = make_board("rk3588-proc")
    proc = tmp_path / "proc-of-the-container"
    (Path(host.root) / "proc").rename(proc)
    assert main(["capture", "mine", "--root", host.root]) == 0
    assert "NPU load" not in capsys.readouterr().out
    words = ["--proc", str(proc), "--strip", "kitchen", "--strip", "ROCK"]
    assert main(["capture", "mine", "--root", host.root, *words]) == 0
    text = capsys.readouterr().out
    assert "NPU load" in text
    assert "Radxa stripped 5B" in text
    assert main(["scan", "--root", host.root, "--proc", str(proc), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["npus"][0]["load"] == [0.52, 0.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "code"), [(["scan", "--root", "/nowhere"], 0), (["boards"], 1)]
)
def test_without_packages_a_board_is_scanned_and_the_catalogue_says_what_it_needs(
    arguments: list[str], code: int
) -> None:
    """A board has Python and nothing else; a traceback is no answer to a visitor."""
    done = subprocess.run(
        [sys.executable, "-S", "-m", "npu", *arguments],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert ("$(make -s python)" in done.stderr) == bool(code)

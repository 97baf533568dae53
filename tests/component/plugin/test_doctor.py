"""The doctor as a process, on a node and in a container, with faults that were made."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.component.fake_kubelet import FakeKubelet, Held
from tests.component.plugin.plugin_process import CHECKOUT, RESOURCE, PluginProcess

Start = Callable[..., PluginProcess]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Exit code and, by check, the worst level with all texts."""

    code: int
    levels: dict[str, str]
    text: str


def diagnose(*arguments: str, **environment: str) -> Diagnosis:
    """Run the doctor."""
    done = subprocess.run(
        [sys.executable, "-m", "plugin", "doctor", "--json", *arguments],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={k: v for k, v in os.environ.items() if not k.startswith("NPU_")} | environment,
    )
    assert done.stderr == ""
    ranks = ["ok", "warn", "fail"]
    levels: dict[str, str] = {}
    for item in json.loads(done.stdout)["findings"]:
        worst = max(levels.get(item["check"], "ok"), item["level"], key=ranks.index)
        levels[item["check"]] = worst
        assert item["level"] == "ok" or item["remedy"], item
    return Diagnosis(code=done.returncode, levels=levels, text=done.stdout)


def test_healthy_node(kubelet: FakeKubelet, start: Start, board: Path, place: Path) -> None:
    """Driver, library, kubelet, plugin, holders: nothing fails."""
    kubelet.held = (Held("vision", "detector-0", "main", RESOURCE, ("npu0",)),)
    kubelet.start()
    start()
    kubelet.wait_for_devices(RESOURCE, {"npu0": "Healthy"})

    found = diagnose(f"--root={board}", f"--kubelet-dir={place / 'kubelet'}")

    assert found.code == 0, found.text
    assert found.levels["plugin"] == "ok"
    assert found.levels["offer"] == "warn", "all in use"
    assert "vision/detector-0/main" in found.text


def test_node_with_a_wedged_npu_and_without_plugin(
    kubelet: FakeKubelet, board: Path, place: Path
) -> None:
    """Full load that no container asked for, and nobody who offers the NPU."""
    kubelet.start()
    line = "NPU load:  Core0: 100%, Core1:  0%, Core2:  0%,\n"
    (board / "sys/kernel/debug/rknpu/load").write_text(line)

    found = diagnose(f"--root={board}", f"--kubelet-dir={place / 'kubelet'}")

    assert found.code == 1
    assert found.levels["load"] == "fail"
    assert found.levels["plugin"] == "fail"
    assert found.levels["offer"] == "fail"
    assert found.levels["driver"] == found.levels["kubelet"] == "ok"


def test_node_without_kubelet(board: Path, place: Path) -> None:
    """The directory is named, with the value to set."""
    found = diagnose("--on=node", f"--root={board}", f"--kubelet-dir={place / 'kubelet'}")

    assert found.code == 1
    assert found.levels["kubelet"] == "fail"
    assert "kubeletDir" in found.text


def test_container_that_was_given_an_npu(board: Path) -> None:
    """Nodes open: those of a simulated board are devices that exist nowhere else."""
    for node in (board / "dev/dri").iterdir():
        if node.is_char_device() and not node.is_symlink():
            node.unlink()
            os.mknod(node, 0o20660, os.stat("/dev/null").st_rdev)  # noqa: PTH116 - beside mknod

    found = diagnose(
        "--on=container",
        f"--root={board}",
        NPU_DEVICE_IDS="npu0",
        RKNN_NPU_DEVICE="/dev/dri/card1",
    )

    assert found.code == 0, found.text
    assert found.levels["grant"] == found.levels["device node"] == "ok"


def test_container_that_was_given_none(tmp_path: Path) -> None:
    """The first line says what is missing."""
    found = diagnose("--on=container", f"--root={tmp_path}")

    assert found.code == 1
    assert found.levels["grant"] == found.levels["device node"] == "fail"


@pytest.mark.parametrize("option", ["--on=moon", "--nope"])
def test_mistake_in_the_call_ends_with_2(option: str) -> None:
    """Not with a report."""
    done = subprocess.run(
        [sys.executable, "-m", "plugin", "doctor", option],
        cwd=CHECKOUT,
        capture_output=True,
        check=False,
    )

    assert done.returncode == 2


def fault_device_gone(board: Path) -> None:
    (board / "dev/dri/card1").unlink()


def fault_driver_crashed(board: Path) -> None:
    (board / "sys/bus/platform/drivers/RKNPU/fdab0000.npu").unlink()
    device = board / "sys/devices/platform/fdab0000.npu"
    (device / "driver").unlink()
    lines = (device / "uevent").read_text().splitlines(keepends=True)
    (device / "uevent").write_text("".join(lines[1:]))


def fault_made_up_misc_node(board: Path) -> None:
    (board / "dev/rknpu").symlink_to("dri/card1")


def fault_library_of_another_machine(board: Path) -> None:
    library = next((board / "usr/lib").rglob("librknnrt.so"))
    library.write_bytes(library.read_bytes()[:18] + b"\x3e\x00" + library.read_bytes()[20:])


def fault_no_library(board: Path) -> None:
    for library in (board / "usr/lib").rglob("lib*rt.so"):
        library.unlink()


@pytest.mark.parametrize(
    ("fault", "check", "level"),
    [
        (fault_device_gone, "driver", "fail"),
        (fault_driver_crashed, "device node", "fail"),
        (fault_made_up_misc_node, "device node", "fail"),
        (fault_library_of_another_machine, "library", "fail"),
        (fault_no_library, "library", "warn"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_fault_of_the_board_is_named(
    kubelet: FakeKubelet,
    board: Path,
    place: Path,
    fault: Callable[[Path], None],
    check: str,
    level: str,
) -> None:
    """Each with its own line; everything else is looked at as well."""
    kubelet.start()
    fault(board)

    found = diagnose(f"--root={board}", f"--kubelet-dir={place / 'kubelet'}")

    assert found.levels[check] == level, found.text
    assert {"kubelet", "plugin", "holders", "sharing", "cgroup"} <= set(found.levels)


def test_container_whose_device_and_library_went_away(board: Path) -> None:
    """The environment of an earlier answer, and nothing behind it."""
    (board / "opt/npu/lib").mkdir(parents=True)

    found = diagnose(
        "--on=container",
        f"--root={board}",
        NPU_DEVICE_IDS="npu0",
        RKNN_NPU_DEVICE="/dev/dri/card7",
        NPU_LIBRARY_DIR="/opt/npu/lib",
    )

    assert found.code == 1
    assert "named by RKNN_NPU_DEVICE, and not there" in found.text
    assert "nothing is in it" in found.text

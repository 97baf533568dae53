"""The device plugin as a process of its own, on a simulated board."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from npu import catalogue
from npu.layout import expand
from npu.tree import SIMULATED_DEVICE, materialise

CHECKOUT = Path(__file__).resolve().parents[3]
RESOURCE = "rockchip.com/npu"
#: Periods short enough for a test.
FAST = """
rescanPeriodSeconds: 0.2
streamTimeoutSeconds: 1
health: {periodSeconds: 0.2, recoverAfterSeconds: 0.5}
"""


Documented = set[tuple[str, str, str]]


def documented_metrics() -> tuple[Documented, Documented]:
    """Return name, type and meaning of the metrics on their page: always, and only with claims."""
    page = (CHECKOUT / "docs" / "metrics-device-plugin.md").read_text()
    row = re.compile(r"\| `(npu_device_plugin_\w+)` \| (\w+) \| [^|]* \| (.*) \|")
    always, _, of_claims = page.partition("## Only with `plugin.mode: dra`")
    return set(row.findall(always)), set(row.findall(of_claims))


def exposed_metrics(text: str) -> Documented:
    """Return name, type and meaning of the plugin's metrics in an exposition."""
    found = re.findall(r"# HELP (npu_device_plugin_\w+) (.*)\n# TYPE \S+ (\w+)", text)
    return {(name, kind, meaning) for name, meaning, kind in found}


def write_board(directory: Path, name: str = "rk3588") -> Path:
    """Write a board of the catalogue with real character devices (needs CAP_MKNOD)."""
    materialise(expand(catalogue.load(name), SIMULATED_DEVICE), directory, device_nodes=True)
    return directory


class PluginProcess:
    """``python -m plugin`` with its log in a file."""

    def __init__(
        self,
        directory: Path,
        kubelet_dir: Path,
        board: Path,
        *extra: str,
        wrapper: tuple[str, ...] = (),
    ) -> None:
        self.log_path = directory / "plugin.log"
        config = directory / "plugin.yaml"
        config.write_text(FAST)
        self._log = self.log_path.open("ab")
        self._offset = self.log_path.stat().st_size
        self.process = subprocess.Popen(
            [
                *wrapper,
                sys.executable,
                *("-u", "-X", "faulthandler", "-m", "plugin"),
                f"--root={board}",
                f"--node-prefix={board}",
                f"--kubelet-dir={kubelet_dir}",
                f"--config={config}",
                "--bind=127.0.0.1:0",
                *extra,
            ],
            cwd=CHECKOUT,
            stderr=self._log,
            env={k: v for k, v in os.environ.items() if not k.startswith("NPU_PLUGIN")},
        )

    def records(self) -> list[dict[str, object]]:
        """Return the log records of this process so far."""
        text = self.log_path.read_bytes()[self._offset :].decode()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def logged(self, message: str) -> bool:
        """Tell whether a record's message starts like this."""
        return any(str(record["message"]).startswith(message) for record in self.records())

    def wait(self, condition: Callable[[], bool], *, seconds: float = 15.0) -> None:
        """Wait until ``condition`` holds; raises AssertionError with the log."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.log_path.read_text()
            assert time.monotonic() < deadline, self.log_path.read_text()
            time.sleep(0.05)

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of a GET."""
        self.wait(lambda: self.logged("serving HTTP"))
        port = next(r["port"] for r in self.records() if r["message"] == "serving HTTP")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def ready(self) -> bool:
        """Tell whether ``/readyz`` answers 200."""
        return self.get("/readyz")[0] == 200

    def metric(self, series: str) -> float | None:
        """Return the value of one series, None where it is not exposed."""
        for line in self.get("/metrics")[1].splitlines():
            name, _, value = line.rpartition(" ")
            if name == series:
                return float(value)
        return None

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(timeout=15)
        finally:
            self._log.close()

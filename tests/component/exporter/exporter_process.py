"""The exporter as a process of its own, with the rights its container has."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from email.message import Message
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

CHECKOUT = Path(__file__).resolve().parents[3]
#: Root in the container has no capability, so file modes count for it as for everybody.
WITHOUT_CAPABILITIES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")

Series = dict[tuple[tuple[str, str], ...], float]


class ExporterProcess:
    """``python -m exporter`` with its log in a file."""

    def __init__(self, directory: Path, board: Path, socket: Path | str, *extra: str) -> None:
        self.log_path = directory / "exporter.log"
        self._log = self.log_path.open("wb")
        self.process = subprocess.Popen(
            [
                *(WITHOUT_CAPABILITIES if os.geteuid() == 0 else ()),
                *(sys.executable, "-u", "-X", "faulthandler", "-m", "exporter"),
                f"--root={board}",
                f"--pod-resources-socket={socket}",
                "--bind=127.0.0.1:0",
                *extra,
            ],
            cwd=CHECKOUT,
            stderr=self._log,
            env={k: v for k, v in os.environ.items() if not k.startswith("NPU_EXPORTER")},
        )

    def records(self) -> list[dict[str, object]]:
        """Return the log records so far."""
        lines = self.log_path.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def wait(self, condition: Callable[[], bool], *, seconds: float = 20.0) -> None:
        """Wait until ``condition`` holds; raises AssertionError with the log."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.log_path.read_text()
            assert time.monotonic() < deadline, self.log_path.read_text()
            time.sleep(0.1)

    def port(self) -> int:
        """Wait until the exporter serves and return its port."""

        def told() -> list[object]:
            return [r["port"] for r in self.records() if r["message"] == "serving HTTP"]

        self.wait(lambda: bool(told()))
        return int(str(told()[0]))

    def get(
        self, path: str, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes, Message]:
        """Return status, body and headers of a GET."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port()}{path}", headers=dict(headers or {})
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - as above
                return answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), error.headers

    def metrics(self, query: str = "") -> dict[str, Series]:
        """Return all series by metric and labels; the exposition must parse."""
        status, body, _ = self.get(f"/metrics{query}")
        assert status == 200
        found: dict[str, Series] = {}
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                labels = tuple(sorted(sample.labels.items()))
                found.setdefault(sample.name, {})[labels] = sample.value
        return found

    def success(self, collector: str) -> bool:
        """Tell whether a collector is successful."""
        return self.metrics()["npu_scrape_collector_success"][("collector", collector),] == 1

    def ready(self) -> bool:
        """Tell whether ``/readyz`` answers 200."""
        return self.get("/readyz")[0] == 200

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(timeout=15)
        finally:
            self._log.close()

"""A Prometheus server beside an embedded cluster: the scraping half of demo and tests.

It runs on the machine itself and reaches the platform's Pods by their addresses, which the embedded
cluster routes here.
"""

import json
import os
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from ci import tools
from ci.kube import Json

_STOP_SECONDS = 10.0
_PORT = 8080
_COMPONENT = "app.kubernetes.io/component"


def configuration(targets: Path, *, scrape_seconds: float) -> Json:
    """Return the configuration: the targets listed in the file ``targets``.

    Debian's Prometheus is built without the Kubernetes discovery, so the list is written here.
    """
    interval = f"{int(scrape_seconds * 1000)}ms"
    return {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "scrape_configs": [
            {
                "job_name": "npu-platform",
                "honor_labels": True,
                "file_sd_configs": [{"files": [str(targets)], "refresh_interval": "1s"}],
            }
        ],
    }


def targets_of(pods: list[Json]) -> list[Json]:
    """Return the target list of the platform's ready Pods, labelled as the chart's monitors do."""
    return [
        {
            "targets": [f"{pod['status']['podIP']}:{_PORT}"],
            "labels": {
                "job": f"npu-platform-{pod['metadata']['labels'][_COMPONENT]}",
                "node": pod["spec"]["nodeName"],
            },
        }
        for pod in pods
        if _COMPONENT in pod["metadata"].get("labels", {}) and pod["status"].get("podIP")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """A server whose files lie in ``directory``; one directory is one server."""

    directory: Path
    port: int

    @property
    def url(self) -> str:
        """Where its page and its API are."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, pods: list[Json], *, scrape_seconds: float = 2.0) -> None:
        """Start the server, replacing one that runs; it goes on after this process ends."""
        self.stop()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.scrape(pods)
        file = self.directory / "prometheus.yaml"
        # JSON is YAML.
        file.write_text(json.dumps(configuration(self._targets, scrape_seconds=scrape_seconds)))
        with (self.directory / "prometheus.log").open("w") as log:
            process = subprocess.Popen(
                [
                    tools.prometheus(),
                    f"--config.file={file}",
                    f"--storage.tsdb.path={self.directory / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                    "--web.enable-lifecycle",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._pid_file.write_text(f"{process.pid} {_started_at(process.pid)}")

    def stop(self) -> None:
        """End the server if the one started here still runs."""
        try:
            number, started = self._pid_file.read_text().split()
        except (OSError, ValueError):
            return
        pid = int(number)
        end = time.monotonic() + _STOP_SECONDS
        # The start time guards against a number that another process has by now.
        while _started_at(pid) == started:
            os.kill(pid, signal.SIGTERM if time.monotonic() < end else signal.SIGKILL)
            time.sleep(0.1)
        self._pid_file.unlink(missing_ok=True)

    def scrape(self, pods: list[Json]) -> None:
        """Scrape these Pods from now on."""
        fresh = self._targets.with_suffix(".part")
        fresh.write_text(json.dumps(targets_of(pods)))
        fresh.rename(self._targets)

    def query(self, expression: str) -> list[Json]:
        """Return the instant vector of a PromQL expression."""
        query = urllib.parse.urlencode({"query": expression})
        answer = self._get(f"/api/v1/query?{query}")
        result: list[Json] = answer["data"]["result"]
        return result

    def value(self, expression: str) -> float | None:
        """Return the one value of an expression, None where it has no result."""
        result = self.query(expression)
        return float(result[0]["value"][1]) if len(result) == 1 else None

    def healthy_targets(self) -> list[Json]:
        """Return the targets whose last scrape worked; none while the server starts."""
        try:
            targets = self._get("/api/v1/targets?state=active")["data"]["activeTargets"]
        except OSError:
            return []
        return [target for target in targets if target["health"] == "up"]

    def _get(self, path: str) -> Json:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:  # noqa: S310
            return json.load(answer)

    @property
    def _targets(self) -> Path:
        return self.directory / "targets.json"

    @property
    def _pid_file(self) -> Path:
        return self.directory / "prometheus.pid"


def _started_at(pid: int) -> str | None:
    """Return the start time of a process in clock ticks since boot (proc(5), field 22)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]

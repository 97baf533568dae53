"""The real program: options, loops, probes, signals, clean-up."""

import http.server
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.component.fake_apiserver import FakeApiServer
from tests.component.thermal.guard_rig import hot_taint
from thermal.names import ANNOTATION_STATE

LEASE = "/apis/coordination.k8s.io/v1/namespaces/npu/leases/guard"
CONFIG = """
thresholds: {timing: {hotHoldSeconds: 600, hotEnterSeconds: 1}}
scrape: {intervalSeconds: 1, warmIntervalSeconds: 1}
"""


def until(true: Callable[[], bool]) -> None:
    """Wait until something holds; the time limit of the test is the limit."""
    while not true():
        time.sleep(0.05)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class _Exporters(http.server.ThreadingHTTPServer):
    """Exporters of all nodes on one port; the address tells the node."""

    celsius = 45.0

    def __init__(self) -> None:
        super().__init__(("0.0.0.0", 0), _Page)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


class _Page(http.server.BaseHTTPRequestHandler):
    server: _Exporters

    def do_GET(self) -> None:
        celsius = self.server.celsius
        body = (
            'npu_info{device="npu0",vendor="rockchip",model="rk3588",simulated="true"} 1\n'
            f'npu_temperature_celsius{{device="npu0",zone="npu-thermal"}} {celsius}\n'
        ).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class _Guard:
    """A running guard."""

    def __init__(self, tmp_path: Path, server: FakeApiServer, port: int, name: str) -> None:
        (tmp_path / "guard.yaml").write_text(CONFIG)
        (tmp_path / "kubeconfig").write_text(server.kubeconfig())
        self.port = free_port()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "thermal",
                f"--config={tmp_path / 'guard.yaml'}",
                f"--kubeconfig={tmp_path / 'kubeconfig'}",
                "--namespace=npu",
                f"--pod-name={name}",
                f"--exporter-port={port}",
                "--lease-name=guard",
                f"--bind=127.0.0.1:{self.port}",
                "--log-format=text",
            ]
        )

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body, 0 where nothing answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def stop(self) -> int:
        """Stop it as the kubelet would; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=20)


@pytest.fixture
def exporters() -> Iterator[_Exporters]:
    """Serve pages of both nodes."""
    made = _Exporters()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def start(
    server: FakeApiServer, exporters: _Exporters, tmp_path: Path
) -> Iterator[Callable[[str], _Guard]]:
    """Start guards that end with the test."""
    started: list[_Guard] = []

    def make(name: str) -> _Guard:
        guard = _Guard(tmp_path, server, exporters.server_address[1], name)
        started.append(guard)
        return guard

    yield make
    for guard in started:
        if guard.process.poll() is None:
            guard.process.kill()
            guard.process.wait()


def adopt_hot(server: FakeApiServer) -> None:
    """Mark n1 as a former leader would have."""
    node = server.node("n1")
    node["metadata"]["annotations"] = {
        ANNOTATION_STATE: '{"state":"hot","applied":"NoSchedule","devices":{"npu0":"hot"}}'
    }
    node["spec"]["taints"].append(
        {"key": "thermal.npu-platform.io/hot", "value": "80", "effect": "NoSchedule"}
    )
    server.put("/api/v1/nodes/n1", node)


def test_life_of_two_guards(server: FakeApiServer, start: Callable[[str], _Guard]) -> None:
    """One leads, both are ready; after SIGTERM the taint stays and the other leads at once."""
    adopt_hot(server)
    first = start("guard-a")
    until(lambda: first.get("/api/v1/nodes")[0] == 200)
    second = start("guard-b")
    until(lambda: second.get("/readyz")[0] == 200)

    until(lambda: json.loads(first.get("/api/v1/nodes")[1])["nodes"] != [])
    until(lambda: 'node="n1",state="hot"' in first.get("/metrics")[1])
    assert "npu_thermal_guard_leader 0.0" in second.get("/metrics")[1]
    assert first.get("/?sort=node")[0] == 200
    assert "n1" in first.get("/")[1]
    assert "guard-a leads" in second.get("/")[1]
    assert json.loads(first.get("/api/v1/decisions?node=n1")[1])["leader"] is True
    assert json.loads(second.get("/api/v1/nodes")[1]) == {"leader": False, "holder": "guard-a"}
    assert (first.get("/healthz")[0], second.get("/healthz")[0]) == (200, 200)

    assert first.stop() == 0
    assert hot_taint(server.node("n1")) is not None
    until(lambda: "npu_thermal_guard_leader 1.0" in second.get("/metrics")[1])
    until(lambda: 'node="n1",state="hot"' in second.get("/metrics")[1])
    assert hot_taint(server.node("n1")) is not None
    assert server.object(LEASE)["spec"]["holderIdentity"] == "guard-b"
    assert second.stop() == 0


def test_a_mute_server_does_not_keep_the_guard_from_stopping(
    server: FakeApiServer, start: Callable[[str], _Guard]
) -> None:
    """Alive while the API server hangs, not leader any more, and stopped on request."""
    guard = start("guard-a")
    until(lambda: guard.get("/api/v1/nodes")[0] == 200)
    server.mute.set()

    until(lambda: "npu_thermal_guard_leader 0.0" in guard.get("/metrics")[1])

    assert guard.get("/healthz")[0] == 200
    assert guard.stop() == 0


def test_a_bad_configuration_ends_with_code_two(tmp_path: Path) -> None:
    """One line that names file and key, before anything is touched."""
    (tmp_path / "guard.yaml").write_text("{taint: NoExecute}")

    done = subprocess.run(
        [sys.executable, "-m", "thermal", f"--config={tmp_path / 'guard.yaml'}", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "guard.yaml" in done.stderr
    assert "taint" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_cleanup_command(server: FakeApiServer, tmp_path: Path) -> None:
    """Exit code 0 and a clean node; 1 while a guard still runs."""
    adopt_hot(server)
    (tmp_path / "kubeconfig").write_text(server.kubeconfig())
    command = [
        sys.executable,
        "-m",
        "thermal",
        "cleanup",
        f"--kubeconfig={tmp_path / 'kubeconfig'}",
        "--namespace=npu",
    ]

    waiting = subprocess.run(
        [*command, "--wait-for-pods=a=b", "--wait-seconds=0.1"], capture_output=True, check=False
    )
    assert waiting.returncode == 1
    assert hot_taint(server.node("n1")) is not None

    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert hot_taint(server.node("n1")) is None

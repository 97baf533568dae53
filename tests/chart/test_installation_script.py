"""The script behind `helm test` tells a broken promise from a kept one."""

import importlib.util
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ci.chart import CHART

METRICS = b'npu_info{device="npu0"} 1\nnpu_thermal_guard_leader 1.0\n'


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script as a module, told where its API server would be."""
    path = CHART / "files" / "installation_test.py"
    specification = importlib.util.spec_from_file_location("installation_test", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    return module


class Handler(BaseHTTPRequestHandler):
    """Serves the metrics of a Pod that is exporter and leading guard in one."""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(METRICS)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    """Serve plain HTTP."""
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def secure_port(tmp_path: Path) -> Iterator[int]:
    """Serve HTTPS, with a certificate for a name that is not the address; it lies in the folder."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-nodes"),
            *("-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=npu-platform-exporter"),
            *("-keyout", tmp_path / "key.pem", "-out", tmp_path / "ca.crt"),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "ca.crt", tmp_path / "key.pem")
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def node(name: str, **allocatable: str) -> dict[str, Any]:
    """Return a node that offers this many NPUs."""
    return {
        "metadata": {"name": name},
        "status": {"allocatable": {"rockchip.com/npu": allocatable.get("npu", "0")}},
    }


def pod(name: str, where: str) -> dict[str, Any]:
    """Return a running Pod on a node."""
    return {
        "metadata": {"name": name},
        "spec": {"nodeName": where},
        "status": {"podIP": "127.0.0.1"},
    }


ARGUMENTS = (
    *("--namespace=npu", "--instance=r", "--resource=rockchip.com/npu", "--seconds=0"),
    *("--component=exporter", "--component=guard"),
)


def run(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, port: int, nodes: object, pods: object
) -> int:
    """Run the script against these lists."""
    monkeypatch.setattr(
        script,
        "listed",
        lambda address, path, selector="": nodes if path.endswith("/nodes") else pods,
    )
    result = script.main([*ARGUMENTS, f"--port={port}"])
    assert isinstance(result, int)
    return result


def test_kept_promises(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    port: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A node with an NPU, its exporter and one leader is a working installation."""
    nodes = [node("a", npu="1"), node("b")]
    assert run(script, monkeypatch, port, nodes, [pod("p", "a")]) == 0
    assert "a offers rockchip.com/npu: 1" in capsys.readouterr().out


def test_no_npu_is_said(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    port: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where no node has an NPU the test says so instead of waiting for a Pod to be placed."""
    assert run(script, monkeypatch, port, [node("a")], [pod("p", "a")]) == 1
    assert "none of 1 nodes offers rockchip.com/npu" in capsys.readouterr().err


def test_missing_exporter(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    port: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A node with an NPU but no exporter is named."""
    nodes = [node("a", npu="1"), node("b", npu="1")]
    assert run(script, monkeypatch, port, nodes, [pod("p", "a")]) == 1
    assert "node b offers an NPU but no exporter" in capsys.readouterr().err


def test_two_leaders(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    port: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two leading guards are a broken promise."""
    pods = [pod("p", "a"), pod("q", "a")]
    assert run(script, monkeypatch, port, [node("a", npu="1")], pods) == 1
    assert "2 of 2 guards lead" in capsys.readouterr().err


def test_unreachable_pod(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Pod that does not answer is reported with its address."""
    assert run(script, monkeypatch, 1, [node("a", npu="1")], [pod("p", "a")]) == 1
    assert "127.0.0.1:1/metrics does not answer" in capsys.readouterr().err


def test_exporters_that_speak_tls(
    script: ModuleType, secure_port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The authority is enough: Pods have no names that could be compared."""
    pods = [pod("e", "n1")]
    script.check_exporters(pods, {"n1": {"rockchip.com/npu": 1}}, secure_port, str(tmp_path))
    assert "1 exporters answer" in capsys.readouterr().out
    with pytest.raises(script.BrokenError, match="does not answer"):
        script.check_exporters(pods, {}, secure_port)

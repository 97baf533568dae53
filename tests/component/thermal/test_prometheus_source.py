"""Readings from a Prometheus, over real HTTP: fresh, bounded, with credentials."""

import base64
import json
import ssl
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from thermal.config import Prometheus
from thermal.prometheus import ANSWER_LIMIT_BYTES, PrometheusSource, pages_of
from thermal.readings import NodeSample
from thermal.source import Failure, Target

TARGETS = [Target(node=name, address="10.0.0.1") for name in ("n1", "n2")]


class FakePrometheus:
    """Answers queries as told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.body: bytes = answer()
        self.status = 200
        self.delay_seconds = 0.0
        self.authorizations: list[str | None] = []
        self.queries: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                asked = urllib.parse.parse_qs(self.rfile.read(length).decode())
                outer.queries.append(asked["query"][0])
                outer.authorizations.append(self.headers["Authorization"])
                time.sleep(outer.delay_seconds)
                self.send_response(outer.status)
                self.send_header("Location", "http://127.0.0.1:1/")
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, *_arguments: object) -> None:
                """Stay quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    """Serve until the end of the test."""
    fake = FakePrometheus()
    yield fake
    fake.server.shutdown()
    fake.server.server_close()
    fake.thread.join()


def series(name: str, *values: tuple[float, str], **labels: str) -> dict[str, object]:
    metric = {"__name__": name, "node": "n1", "device": "npu0", **labels}
    return {"metric": metric, "values": [list(value) for value in values]}


def answer(*more: object) -> bytes:
    found = [
        series("npu_info", (100.0, "1"), (115.0, "1"), vendor="rockchip", model="rk3588"),
        series("npu_temperature_celsius", (100.0, "50"), (115.0, "61.5"), zone="npu-thermal"),
        *more,
    ]
    return json.dumps({"status": "success", "data": {"result": found}}).encode()


def source(prometheus: FakePrometheus, **settings: object) -> PrometheusSource:
    chosen = {"url": prometheus.url, "timeout_seconds": 2.0, **settings}
    return PrometheusSource(Prometheus(**chosen))  # type: ignore[arg-type]


def test_newest_sample_counts_and_an_absent_node_is_stale(prometheus: FakePrometheus) -> None:
    """One query for all; a node without samples in the window has no reading."""
    results = source(prometheus, matchers='cluster="edge"').read(TARGETS)

    first = results["n1"]
    assert isinstance(first, NodeSample)
    assert [(one.device, one.model, one.celsius) for one in first.devices] == [
        ("npu0", "rk3588", 61.5)
    ]
    assert isinstance(results["n2"], Failure)
    assert results["n2"].reason == "stale"
    (query,) = prometheus.queries
    assert query.endswith(',node!="",cluster="edge"}[45000ms]')
    assert "npu_temperature_celsius" in query


def test_series_that_left_the_page_is_gone_and_not_old(prometheus: FakePrometheus) -> None:
    """A sensor that failed at the last scrape has no temperature, whatever it had before."""
    found = [
        series("npu_info", (100.0, "1"), (115.0, "1"), vendor="rockchip", model="rk3588"),
        series("npu_temperature_celsius", (100.0, "50")),
    ]
    prometheus.body = json.dumps({"status": "success", "data": {"result": found}}).encode()

    result = source(prometheus).read(TARGETS)["n1"]

    assert isinstance(result, NodeSample)
    assert [one.celsius for one in result.devices] == [None]


def test_credentials_are_read_anew(prometheus: FakePrometheus, tmp_path: Path) -> None:
    """A rotated token or password works with the next query."""
    token, user, password = tmp_path / "token", tmp_path / "user", tmp_path / "password"
    token.write_text("first\n")
    bearer = source(prometheus, token_file=str(token))
    bearer.read(TARGETS)
    token.write_text("second\n")
    bearer.read(TARGETS)
    user.write_text("guard")
    password.write_text("secret\n")
    source(prometheus, username_file=str(user), password_file=str(password)).read(TARGETS)

    basic = "Basic " + base64.b64encode(b"guard:secret").decode()
    assert prometheus.authorizations == ["Bearer first", "Bearer second", basic]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, b"no"),
        (302, b""),
        (200, b"<html>"),
        (200, b"[" * 100_000),
        (200, b'{"status":"error","error":"bad_data"}'),
        (200, b'{"status":"success","data":7}'),
    ],
)
def test_answer_that_is_none_fails_all_nodes(
    prometheus: FakePrometheus, status: int, body: bytes
) -> None:
    """Nothing is raised, no redirect is followed; every node has no reading."""
    prometheus.status, prometheus.body = status, body

    results = source(prometheus).read(TARGETS)

    assert {type(result) for result in results.values()} == {Failure}
    assert len(prometheus.queries) == 1


def test_silent_server_is_a_timeout(prometheus: FakePrometheus) -> None:
    """The judging loop waits no longer than it was told."""
    prometheus.delay_seconds = 3.0

    result = source(prometheus, timeout_seconds=0.3).read(TARGETS)["n1"]

    assert isinstance(result, Failure)
    assert result.reason == "timeout"


def test_unreachable_server_and_unreadable_secret_fail_all_nodes(tmp_path: Path) -> None:
    """Both are errors of the guard's surroundings, told as the nodes' problem."""
    for settings in (
        Prometheus(url="http://127.0.0.1:1"),
        Prometheus(url="http://127.0.0.1:1", token_file=str(tmp_path / "absent")),
    ):
        result = PrometheusSource(settings).read(TARGETS)["n2"]
        assert isinstance(result, Failure)
        assert result.reason == "http"


def test_certificate_is_verified(prometheus: FakePrometheus, tmp_path: Path) -> None:
    """TLS works with the right authority and not without."""
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(key)),
            *("-out", str(certificate), "-days", "1", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    prometheus.server.socket = context.wrap_socket(prometheus.server.socket, server_side=True)
    url = prometheus.url.replace("http:", "https:")

    trusted = source(prometheus, url=url, ca_file=str(certificate)).read(TARGETS)["n1"]
    stranger = source(prometheus, url=url).read(TARGETS)["n1"]

    assert isinstance(trusted, NodeSample)
    assert isinstance(stranger, Failure)
    assert "certificate" in stranger.detail


def test_hostile_series_are_left_out() -> None:
    """What is no sample costs itself only."""
    page = pages_of(
        answer(
            7,
            {"metric": {"node": "n1"}, "values": []},
            {"metric": {"node": ["n1"]}, "values": [[1, "2"]]},
            series("npu_temperature_celsius", (115.0, "NaN"), device="npu1"),
            series("npu_temperature_celsius", (115.0, "hot"), device="npu2"),
        ),
        {},
    )

    assert [sample.labels["device"] for sample in page["n1"].samples] == ["npu0", "npu0"]
    assert page["n1"].malformed == 1
    assert ANSWER_LIMIT_BYTES < 100 << 20


@pytest.mark.parametrize("instance", ["10.0.0.2:8080", "[fd00::2]:8080"])
def test_node_speaks_for_no_other(prometheus: FakePrometheus, instance: str) -> None:
    """A sample scraped from one node's exporter that names another is left out, and counted."""
    liar = {"instance": instance, "zone": "npu-thermal"}
    prometheus.body = answer(
        series("npu_temperature_celsius", (115.0, "109"), node="n1", **liar),
        series("npu_info", (115.0, "1"), node="n2", model="rk3588", **liar),
        series("npu_temperature_celsius", (115.0, "55"), node="n2", **liar),
    )
    address = instance.rpartition(":")[0].strip("[]")
    targets = [Target(node="n1", address="10.0.0.1"), Target(node="n2", address=address)]

    results = source(prometheus).read(targets)

    found = {}
    for node, result in results.items():
        assert isinstance(result, NodeSample)
        found[node] = [device.celsius for device in result.devices], result.malformed
    assert found == {"n1": ([61.5], 0), "n2": ([55.0], 1)}

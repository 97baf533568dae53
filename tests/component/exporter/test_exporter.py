"""The exporter's process over a simulated board: what is served when parts of the board fail."""

import gzip
import os
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from npu import catalogue
from npu.layout import expand
from npu.tree import materialise, update
from tests.component.exporter.exporter_process import CHECKOUT, ExporterProcess
from tests.component.fake_kubelet import FakeKubelet, Held

Start = Callable[..., ExporterProcess]

LOAD = "/sys/kernel/debug/rknpu/load"
NPU_TEMPERATURE = "/sys/class/thermal/thermal_zone6/temp"
NPU0 = ("device", "npu0")
BUSY = b"NPU load:  Core0: 50%, Core1:100%, Core2:  0%,\n"


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """An RK3588 board."""
    directory = tmp_path / "board"
    materialise(expand(catalogue.load("rk3588")), directory, device_nodes=False)
    return directory


@pytest.fixture
def kubelet() -> Iterator[FakeKubelet]:
    """A kubelet, not started; socket paths must be short."""
    with tempfile.TemporaryDirectory(prefix="npu-") as directory:
        made = FakeKubelet(Path(directory))
        yield made
        made.stop()


@pytest.fixture
def start(tmp_path: Path, board: Path) -> Iterator[Start]:
    """Starts exporters on the board and ends them; each must end as it was asked to."""
    started: list[ExporterProcess] = []

    def begin(*extra: str, socket: Path | str = "") -> ExporterProcess:
        process = ExporterProcess(tmp_path, board, socket, *extra)
        started.append(process)
        return process

    yield begin
    codes = [process.end() for process in started]
    assert codes == [0] * len(started)


def busy(exporter: ExporterProcess) -> float:
    found = exporter.metrics("?name[]=npu_core_busy_seconds_total")
    return sum(found.get("npu_core_busy_seconds_total", {}).values())


def test_load_becomes_counters_of_device_and_pod(
    start: Start, board: Path, kubelet: FakeKubelet
) -> None:
    """Half a core and a whole one are 1.5 busy seconds per sampled one, given to the holder."""
    kubelet.held = (Held("team-a", "detector-0", "main", "rockchip.com/npu", ("npu0",)),)
    kubelet.start()
    update(board, {LOAD: BUSY})
    exporter = start(socket=kubelet.pod_resources / "kubelet.sock")
    holder = (
        ("attribution", "exclusive"),
        ("namespace", "team-a"),
        ("pod", "detector-0"),
    )

    exporter.wait(lambda: busy(exporter) > 4)
    found = exporter.metrics()

    cores = found["npu_core_busy_seconds_total"]
    sampled = found["npu_core_sampled_seconds_total"]
    ratios = [cores[labels] / sampled[labels] for labels in sorted(cores)]
    assert ratios == pytest.approx([0.5, 1.0, 0.0])
    assert found["npu_pod_core_busy_seconds_total"][holder] > 0
    owned = (
        found["npu_pod_core_busy_seconds_total"][holder],
        *found["npu_unaccounted_core_busy_seconds_total"].values(),
    )
    assert sum(owned) == pytest.approx(sum(cores.values()))
    assert found["npu_podresources_up"] == {(): 1}
    assert len(found["npu_device_allocation_info"]) == 1
    assert exporter.get("/healthz")[:2] == (200, b"ok\n")
    assert exporter.ready()


@pytest.mark.parametrize("fault", ["missing", "denied", "empty", "garbage"])
def test_unreadable_load(start: Start, board: Path, fault: str) -> None:
    """Not ready with the reason, alive, everything else served; it recovers by itself."""
    exporter = start()
    exporter.wait(exporter.ready)
    path = board / LOAD.lstrip("/")
    if fault == "missing":
        path.unlink()
    elif fault == "denied":
        path.chmod(0)
    else:
        update(board, {LOAD: b"" if fault == "empty" else b"NPU load: Core0:   %,\n"})

    exporter.wait(lambda: not exporter.ready())
    before = busy(exporter)
    found = exporter.metrics()

    assert LOAD in exporter.get("/readyz")[1].decode()
    assert exporter.get("/healthz")[0] == 200
    assert found["npu_up"] == {(NPU0,): 0}
    assert found["npu_scrape_collector_success"][("collector", "load"),] == 0
    assert found["npu_scrape_collector_success"][("collector", "temperature"),] == 1
    assert len(found["npu_temperature_celsius"]) == 1
    assert busy(exporter) == before

    path.unlink(missing_ok=True)
    update(board, {LOAD: BUSY})
    exporter.wait(exporter.ready)
    exporter.wait(lambda: busy(exporter) > before)


def test_sensor_that_blocks_or_is_empty_is_absent(start: Start, board: Path) -> None:
    """A sensor answering EAGAIN, and then nothing, is absent and hides no other zone."""
    exporter = start()
    exporter.wait(lambda: exporter.success("temperature"))
    path = board / NPU_TEMPERATURE.lstrip("/")
    path.unlink()
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    try:
        found = exporter.metrics()
    finally:
        os.close(writer)
    assert "npu_temperature_celsius" not in found
    assert len(found["npu_thermal_zone_celsius"]) == 6
    assert found["npu_scrape_collector_success"][("collector", "temperature"),] == 0
    assert found["npu_temperature_implausible_total"] == {(): 0}

    found = exporter.metrics()
    assert "npu_temperature_celsius" not in found
    assert found["npu_temperature_implausible_total"] == {(): 1}
    assert exporter.ready()


def test_implausible_temperature_is_dropped_and_counted(start: Start, board: Path) -> None:
    """82505 degrees are no temperature; 0 millidegrees are one."""
    update(board, {NPU_TEMPERATURE: b"82505000\n"})
    exporter = start()
    found = exporter.metrics()
    assert "npu_temperature_celsius" not in found
    assert found["npu_temperature_implausible_total"] == {(): 1}
    update(board, {NPU_TEMPERATURE: b"0\n"})
    found = exporter.metrics()
    assert set(found["npu_temperature_celsius"].values()) == {0.0}


def test_kubelet_restart(start: Start, kubelet: FakeKubelet) -> None:
    """Without the kubelet holders are absent and the rest is served; they come back."""
    kubelet.held = (Held("team-a", "detector-0", "main", "rockchip.com/npu", ("npu0",)),)
    exporter = start(socket=kubelet.pod_resources / "kubelet.sock")
    exporter.wait(lambda: exporter.metrics().get("npu_podresources_up") == {(): 0})
    found = exporter.metrics()
    assert "npu_device_allocation_info" not in found
    assert found["npu_scrape_collector_success"][("collector", "allocation"),] == 0
    assert found["npu_scrape_collector_success"][("collector", "load"),] == 1
    assert exporter.ready()

    kubelet.start()
    exporter.wait(lambda: "npu_device_allocation_info" in exporter.metrics())
    assert exporter.metrics()["npu_podresources_up"] == {(): 1}


def test_hostile_names_stay_names(start: Start, kubelet: FakeKubelet) -> None:
    """A name with quotes and newlines forges no series and no markup."""
    name = 'x"} 1\nnpu_temperature_celsius{zone="npu-thermal"} 20\n<script>\\'
    kubelet.held = (Held(name, name, name, "rockchip.com/npu", ("npu0",)),)
    kubelet.start()
    exporter = start(socket=kubelet.pod_resources / "kubelet.sock")
    exporter.wait(lambda: "npu_device_allocation_info" in exporter.metrics())
    found = exporter.metrics()
    (labels,) = found["npu_device_allocation_info"]
    assert dict(labels)["pod"] == name
    assert set(found["npu_temperature_celsius"].values()) != {20.0}
    assert name not in exporter.get("/")[1].decode()


def test_filter_serves_only_what_was_asked_for(start: Start) -> None:
    """The guard's scrape carries its metrics and nothing else."""
    exporter = start()
    found = exporter.metrics("?name[]=npu_temperature_celsius&name[]=npu_info&name[]=nonsense")
    assert set(found) == {"npu_temperature_celsius", "npu_info"}
    assert exporter.metrics("?name[]=nonsense") == {}


def test_openmetrics_and_compression(start: Start) -> None:
    """Both are negotiated; the answer is valid in the strict format too."""
    exporter = start()
    status, body, headers = exporter.get(
        "/metrics",
        {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"},
    )
    assert status == 200
    assert headers["Content-Encoding"] == "gzip"
    text = gzip.decompress(body).decode()
    assert text.endswith("# EOF\n")
    names = {family.name for family in parse_openmetrics(text)}  # type: ignore[no-untyped-call]
    assert {"npu", "npu_core_busy_seconds", "npu_temperature_celsius"} <= names
    assert "_created" not in text


def test_pages(start: Start) -> None:
    """A page for people at /, help for a wrong path, every answer counted."""
    exporter = start()
    status, body, headers = exporter.get("/")
    assert status == 200
    assert headers["Content-Type"].startswith("text/html")
    assert "npu0" in body.decode()
    status, body, _ = exporter.get("/metric")
    assert status == 404
    assert "/metrics" in body.decode()
    answers = exporter.metrics()["npu_exporter_http_requests_total"]
    assert answers[("code", "404"),] == 1
    assert answers[("code", "200"),] >= 1


def test_tls(start: Start, tmp_path: Path) -> None:
    """With a certificate the same answers travel encrypted, and plain HTTP gets none."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *[
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
            ],
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    exporter = start(f"--tls-cert-file={certificate}", f"--tls-key-file={key}")
    url = f"https://127.0.0.1:{exporter.port()}/metrics"
    context = ssl.create_default_context(cafile=str(certificate))
    with urllib.request.urlopen(url, timeout=10, context=context) as answer:
        assert b"npu_info" in answer.read()
    with pytest.raises(OSError, match=r"reset|closed|without response"):
        exporter.get("/metrics")


def test_check_opens_the_tls_files(tmp_path: Path) -> None:
    """A certificate that cannot be used is found before the exporter is rolled out."""
    for content, message in ((None, "No such file"), ("no PEM", "not usable for TLS")):
        certificate = tmp_path / "certificate.pem"
        if content is not None:
            certificate.write_text(content)
        argv = [sys.executable, "-m", "exporter", "--check", f"--tls-cert-file={certificate}"]
        done = subprocess.run(
            [*argv, f"--tls-key-file={certificate}"],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert message in done.stderr
        assert str(certificate) in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_lost_and_late_driver(start: Start, board: Path) -> None:
    """An NPU that vanishes takes its series along; after its return it is found again."""
    exporter = start()
    exporter.wait(exporter.ready)
    unit = board / "sys/devices/platform/fdab0000.npu"
    unit.rename(board / "gone")

    exporter.wait(lambda: "npu_up" not in exporter.metrics())
    assert exporter.ready()
    assert "npu_temperature_celsius" not in exporter.metrics()

    (board / "gone").rename(unit)
    exporter.wait(lambda: exporter.metrics().get("npu_up") == {(NPU0,): 1})


def test_once_prints_one_exposition(board: Path) -> None:
    """For a look by hand: valid text, counters at 0, exit code 0."""
    result = subprocess.run(
        [
            *(sys.executable, "-m", "exporter", "--once"),
            f"--root={board}",
            "--pod-resources-socket=",
        ],
        cwd=CHECKOUT,
        capture_output=True,
        check=True,
    )
    found = {family.name: family for family in parse_text(result.stdout.decode())}
    assert {s.value for s in found["npu_core_busy_seconds"].samples} == {0.0}
    assert len(found["npu_temperature_celsius"].samples) == 1


def test_heavy_libraries_are_imported_when_needed(board: Path) -> None:
    """A node without Pods or readers of the page does not pay for gRPC and templates."""
    program = (
        "import sys\n"
        "from exporter.main import main\n"
        f"assert main(['--once', '--root={board}', '--pod-resources-socket=']) == 0\n"
        "heavy = {'kubernetes', 'urllib3', 'grpc', 'google.protobuf', 'jinja2', 'yaml'}\n"
        "sys.exit(' '.join(heavy & sys.modules.keys()))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, check=False
    )
    assert result.stderr.decode().strip() == ""

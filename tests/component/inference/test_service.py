"""The inference service as a process: requests, metrics, heat and its end."""

import base64
import http.client
import json
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ci.patience import patient

CHECKOUT = Path(__file__).resolve().parents[3]
STUB = Path(__file__).with_name("stub.c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A running service."""

    process: "subprocess.Popen[str]"
    port: int

    def ask(
        self, body: bytes | None = None, path: str = "/v1/infer", method: str | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Send a request, a POST where there is a body; return status, headers and answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patient(20))
        connection.request(method or ("GET" if body is None else "POST"), path, body)
        response = connection.getresponse()
        answer = response.status, response.headers, response.read()
        connection.close()
        return answer

    def metrics(self) -> dict[str, float]:
        """Return the series of the exposition."""
        lines = self.ask(path="/metrics")[2].decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}


@contextmanager
def serving(*arguments: str, environment: dict[str, str] | None = None) -> Iterator[Served]:
    """Run the service until the block ends."""
    command = [sys.executable, "-u", "-m", "inference", "--bind", "127.0.0.1:0", *arguments]
    with subprocess.Popen(
        [*command, "--log-format=text"],
        cwd=CHECKOUT,
        env=environment or {},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            lines: list[str] = []
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"serving HTTP port=(\d+)", line):
                    break
            else:
                raise AssertionError("".join(lines))
            threading.Thread(target=process.stderr.read, daemon=True).start()
            served = Served(process=process, port=int(found[1]))
            come_true(lambda: served.ask(path="/readyz")[0] == 200)
            yield served
        finally:
            process.kill()


def come_true(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + patient(20)
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def of(served: Served, name: str, *, model: str = "none") -> float:
    """Return a series of the service."""
    return served.metrics()[f'{name}{{model="{model}",service_name="detector"}}']


SIMULATED: Sequence[str] = ("--backend=simulated", "--service-name=detector", "--drain=0.3")


def test_a_full_queue_says_when_to_come_back() -> None:
    """One runs, two wait, more get 503; then all of it is in the metrics."""
    with (
        serving(*SIMULATED, "--queue=2", "--simulated-seconds=2") as served,
        ThreadPoolExecutor(3) as pool,
    ):
        accepted = [pool.submit(served.ask, b"abcd")]
        come_true(lambda: of(served, "npu_inference_in_flight") == 1)
        accepted += [pool.submit(served.ask, b"abcd") for _ in range(2)]
        come_true(lambda: of(served, "npu_inference_queue_depth") == 2)

        status, headers, text = served.ask(b"abcd")

        assert (status, text) == (503, b"the queue is full\n")
        assert int(headers["Retry-After"]) >= 1
        assert [one.result()[0] for one in accepted] == [200] * 3
        outcome = served.metrics()
        for code, number in (("200", 3), ("503", 1), ("500", 0)):
            series = f'{{code="{code}",model="none",service_name="detector"}}'
            assert outcome[f"npu_inference_requests_total{series}"] == number
        assert of(served, "npu_inference_duration_seconds_count") == 3
        assert of(served, "npu_inference_queue_wait_seconds_count") == 3
        assert of(served, "npu_inference_duration_seconds_sum") > 3 * 1.7
        buckets = [name for name in outcome if name.startswith("npu_inference_duration_sec")]
        assert len(buckets) == 12 + 1 + 2


def test_sigterm_finishes_what_was_accepted() -> None:
    """Unready at once, no accepted request is lost, exit code 0."""
    with (
        serving(*SIMULATED, "--simulated-seconds=1.5") as served,
        ThreadPoolExecutor(3) as pool,
    ):
        accepted = [pool.submit(served.ask, b"abcd") for _ in range(3)]
        come_true(lambda: of(served, "npu_inference_queue_depth") == 2)

        served.process.send_signal(signal.SIGTERM)

        assert [one.result()[0] for one in accepted] == [200] * 3
        assert served.process.wait(patient(10)) == 0


def test_mistakes_of_clients() -> None:
    """Wrong method, path, length: each is told, and the service goes on."""
    with serving(*SIMULATED) as served:
        assert served.ask()[0] == 405
        assert served.ask(b"x", "/v2")[0] == 404
        assert served.ask(b"x", "/metrics")[0] == 404
        raw = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
        raw.putrequest("POST", "/v1/infer")
        raw.endheaders()
        assert raw.getresponse().status == 411
        raw = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
        raw.putrequest("POST", "/v1/infer")
        raw.putheader("Content-Length", str(1 << 30))
        raw.endheaders()
        assert raw.getresponse().status == 413
        assert served.ask(b"abcd")[0] == 200


def test_heat_halves_the_speed(tmp_path: Path) -> None:
    """Above the limit one of two workers goes on, and the metric says so."""
    zone = tmp_path / "sys/class/thermal/thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "type").write_text("npu-thermal\n")
    (zone / "temp").write_text("55000\n")
    with serving(*SIMULATED, f"--root={tmp_path}", environment={"NPU_CORE_HINT": "0,1"}) as served:
        assert of(served, "npu_inference_workers") == 2
        come_true(lambda: of(served, "npu_inference_temperature_readable") == 1)
        assert of(served, "npu_inference_throttled") == 0

        (zone / "temp").write_text("80538\n")

        come_true(lambda: of(served, "npu_inference_throttled") == 1)
        assert of(served, "npu_inference_workers") == 1
        assert served.ask(b"abcd")[0] == 200


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A librknnrt.so that does as the manual says, and a model for it beside it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    folder = tmp_path_factory.mktemp("runtime")
    library = folder / "librknnrt.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, STUB], check=True)
    (folder / "yolov8n.rknn").write_bytes(b"RKNN and so on")
    return folder


def test_librknnrt_through_its_c_interface(runtime: Path) -> None:
    """Inputs, outputs, shapes and errors pass; operators on the CPU are counted."""
    environment = {"NPU_LIBRARY_DIR": str(runtime), "NPU_CORE_HINT": "0,1,2"}
    model = f"--model={runtime / 'yolov8n.rknn'}"
    with serving(model, "--service-name=detector", environment=environment) as served:
        status, _, text = served.ask(bytes(range(12)))
        assert status == 200
        (output,) = json.loads(text)["outputs"]
        assert (output["name"], output["shape"], output["datatype"]) == ("boxes", [1, 12], "FP32")
        floats = struct.unpack("=12f", base64.b64decode(output["data"]))
        assert floats == tuple(float(one) for one in range(1, 13))

        status, _, text = served.ask(b"short")
        assert status == 400
        assert b"5 bytes, the model takes 12: images [1, 2, 2, 3]" in text
        status, _, text = served.ask(b"\xff" * 12)
        assert (status, text) == (500, b"rknn_run: -2 (timed out)\n")

        seen = served.metrics()
        labels = 'model="yolov8n",service_name="detector"'
        assert seen[f'npu_inference_operators{{{labels},target="cpu"}}'] == 1
        assert seen[f'npu_inference_operators{{{labels},target="npu"}}'] == 1
        (slow,) = [name for name in seen if name.startswith("npu_inference_cpu_operator_seconds")]
        assert 'operator="Softmax"' in slow
        assert seen[slow] == 0.0025
        info = next(name for name in seen if name.startswith("npu_model_info"))
        for part in ('version="9.8.7 (stub)"', 'quantization="int8"', 'core_mask="0_1_2"'):
            assert part in info
        assert of(served, "npu_inference_workers", model="yolov8n") == 3
        assert seen['npu_model_load_seconds{model="yolov8n"}'] > 0


def test_a_model_that_does_not_load_is_explained(runtime: Path, tmp_path: Path) -> None:
    """Exit code 2 and a line with the runtime's number and its meaning."""
    model = tmp_path / "other.rknn"
    model.write_bytes(b"something else")
    done = subprocess.run(
        [sys.executable, "-m", "inference", f"--model={model}"],
        cwd=CHECKOUT,
        env={"NPU_LIBRARY_DIR": str(runtime)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "rknn_init: -6 (model invalid" in done.stderr

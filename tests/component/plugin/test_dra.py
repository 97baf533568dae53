"""The driver of Dynamic Resource Allocation as a process, asked as the kubelet asks."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from kubelet._proto import dra_health_v1_pb2 as health
from kubelet._proto import dra_v1_pb2 as dra
from kubelet._proto import pluginregistration_v1_pb2 as registration
from kubelet._proto.dra_health_v1_pb2_grpc import DRAResourceHealthStub
from kubelet._proto.dra_v1_pb2_grpc import DRAPluginStub
from kubelet._proto.pluginregistration_v1_pb2_grpc import RegistrationStub
from tests.component.fake_kubelet.pod_resources import Held, PodResources
from tests.component.plugin.plugin_process import (
    FAST,
    PluginProcess,
    documented_metrics,
    exposed_metrics,
)
from tests.component.plugin.test_doctor import diagnose

Start = Callable[..., PluginProcess]
NAME = "npu.rockchip.com"


@contextmanager
def dialled(socket: Path) -> Iterator[grpc.Channel]:
    """Give a channel as the kubelet makes it."""
    with grpc.insecure_channel(
        f"unix:{socket}", options=(("grpc.default_authority", "localhost"),)
    ) as channel:
        yield channel


@pytest.fixture
def begin(place: Path, start: Start) -> Callable[[], PluginProcess]:
    """Start a plugin of mode dra on a node without a kubelet's PodResources."""
    for folder in ("plugins", "plugins_registry", "pod-resources", "device-plugins"):
        (place / "kubelet" / folder).mkdir(parents=True)
    (place / "cdi").mkdir()
    config = place / "dra.yaml"
    config.write_text(f"{FAST}\nmode: dra\n")
    return lambda: start(f"--config={config}", f"--cdi-dir={place / 'cdi'}", "--node-name=node-1")


@pytest.fixture
def driver(place: Path, begin: Callable[[], PluginProcess]) -> Callable[[], PluginProcess]:
    """Start drivers and wait until they are served."""

    def run() -> PluginProcess:
        process = begin()
        process.wait((place / f"kubelet/plugins_registry/{NAME}-reg.sock").is_socket)
        process.wait(lambda: process.logged("Serving driver"))
        return process

    return run


@pytest.mark.usefixtures("board")
def test_a_kubelet_that_tells_late_is_believed(
    place: Path, begin: Callable[[], PluginProcess]
) -> None:
    """Its first answers fail on a board that starts; the NPU that a Pod has is never offered."""
    holder = Held("default", "pod", "app", "rockchip.com/npu", ("npu0",))
    kubelet = PodResources(lambda: [holder], list)
    kubelet.failure = grpc.StatusCode.UNAVAILABLE, "starting"
    server = kubelet.server(place / "kubelet/pod-resources/kubelet.sock")
    server.start()
    process = begin()
    try:
        process.wait(lambda: kubelet.list_calls > 2)
        kubelet.failure = None
        process.wait(lambda: process.get("/dra")[0] == 200)
        (served,) = json.loads(process.get("/dra")[1])["drivers"]
        (device,) = served["devices"]
        assert (device["state"], device["reason"]) == ("withdrawn", "held_in_other_mode")
    finally:
        server.stop(None)


def register(place: Path) -> Path:
    """Do what the kubelet does with a socket it finds; return that of the driver's API."""
    with dialled(place / f"kubelet/plugins_registry/{NAME}-reg.sock") as channel:
        stub = RegistrationStub(channel)
        info = stub.GetInfo(registration.InfoRequest(), timeout=5, wait_for_ready=True)
        stub.NotifyRegistrationStatus(registration.RegistrationStatus(plugin_registered=True))
    assert (info.type, info.name) == ("DRAPlugin", NAME)
    assert list(info.supported_versions) == ["v1.DRAPlugin", "v1.DRAResourceHealth"]
    return Path(info.endpoint)


def test_life_of_a_claim(place: Path, board: Path, driver: Callable[[], PluginProcess]) -> None:
    """Registered, prepared, healthy; killed and back with its claims; ended without a trace."""
    process = driver()
    assert process.get("/readyz")[0] == 503
    api = register(place)
    process.wait(process.ready)
    claim = dra.Claim(namespace="team", name="pod-npu", uid="u-1")
    with dialled(api) as channel:
        stub = DRAPluginStub(channel)
        answer = stub.NodePrepareResources(dra.NodePrepareResourcesRequest(claims=[claim]))
        stream = DRAResourceHealthStub(channel).NodeWatchResources(
            health.NodeWatchResourcesRequest()
        )
        (told,) = next(stream).devices
        stream.cancel()
    (device,) = answer.claims["u-1"].devices
    assert answer.claims["u-1"].error == ""
    assert (device.pool_name, device.device_name) == ("node-1", "npu0")
    assert list(device.cdi_device_ids) == [f"{NAME}/claim=u-1"]
    assert (told.device.device_name, told.health) == ("npu0", health.HEALTHY)
    file = place / f"cdi/npu-platform-{NAME}.json"
    (entry,) = json.loads(file.read_text())["devices"]
    nodes = entry["containerEdits"]["deviceNodes"]
    assert all(Path(node["hostPath"]).is_char_device() for node in nodes)
    assert all(str(board) in node["hostPath"] for node in nodes)

    process.end(signal.SIGKILL)
    file.unlink()
    again = driver()
    again.wait(file.exists)
    assert json.loads(file.read_text())["devices"] == [entry]
    page = json.loads(again.get("/dra")[1])
    (listed,) = page["drivers"]
    assert page["pool"] == "node-1"
    assert listed["registered"] is False
    assert listed["devices"][0]["attributes"]["model"] == "rk3588"
    assert [c["uid"] for c in listed["claims"]] == ["u-1"]
    assert again.metric(f'npu_device_plugin_prepared_claims{{driver="{NAME}"}}') == 1
    always, of_claims = documented_metrics()
    exposed = exposed_metrics(again.get("/metrics")[1])
    assert of_claims <= exposed <= always | of_claims

    (place / f"kubelet/plugins_registry/{NAME}-reg.sock").unlink()
    again.wait(lambda: again.logged("A socket vanished"))
    again.wait((place / f"kubelet/plugins_registry/{NAME}-reg.sock").is_socket)
    with dialled(register(place)) as channel:
        stub = DRAPluginStub(channel)
        for _ in range(2):
            gone = stub.NodeUnprepareResources(
                dra.NodeUnprepareResourcesRequest(claims=[claim]), wait_for_ready=True
            )
            assert gone.claims["u-1"].error == ""
    again.wait(lambda: not file.exists())
    assert again.end() == 0
    left = [path.name for path in (place / "kubelet").rglob("*") if path.is_socket()]
    assert left == []


def test_claims_of_one_call_stand_each_for_itself(
    place: Path, driver: Callable[[], PluginProcess]
) -> None:
    """One that is named twice is answered once; many calls at once, and calls that are given up."""
    driver()
    with dialled(register(place)) as channel:
        stub = DRAPluginStub(channel)
        claims = [dra.Claim(namespace="team", name=f"c-{uid}", uid=uid) for uid in ("u-1", "u 2")]
        answer = stub.NodePrepareResources(
            dra.NodePrepareResourcesRequest(claims=[*claims, claims[0]]), wait_for_ready=True
        ).claims
        assert len(answer["u-1"].devices) == 1
        assert answer["u-1"].error == ""
        assert "not the UID" in answer["u 2"].error
        assert not answer["u 2"].devices

        many = [dra.Claim(namespace="team", name=f"m-{n}", uid=f"m-{n}") for n in range(40)]
        calls = [
            stub.NodePrepareResources.future(dra.NodePrepareResourcesRequest(claims=[claim]))
            for claim in many
            for _ in range(2)
        ]
        for call in calls[::5]:
            call.cancel()
        told = [call.result(30) for call in calls if not call.cancelled()]
        assert all(not one.error for each in told for one in each.claims.values())
        ended = stub.NodeUnprepareResources(
            dra.NodeUnprepareResourcesRequest(claims=[*many, *claims, *many]), timeout=30
        )
        assert len(ended.claims) == 42
        assert all(not one.error for one in ended.claims.values())
    assert not (place / f"cdi/npu-platform-{NAME}.json").exists()


def test_places_that_are_not_there_yet(place: Path, start: Start, board: Path) -> None:
    """Each is named where people look, and used once it is there."""
    kubelet = place / "kubelet"
    blocked = kubelet / f"plugins_registry/{NAME}-reg.sock"
    for folder in (blocked, kubelet / "pod-resources", kubelet / "device-plugins"):
        folder.mkdir(parents=True)
    (place / "cdi").mkdir()
    config = place / "dra.yaml"
    config.write_text(f"{FAST}\nmode: dra\n")
    process = start(f"--config={config}", f"--cdi-dir={place / 'cdi'}", "--node-name=node-1")

    process.wait(lambda: f"{kubelet}/plugins/{NAME}: No such file" in process.get("/readyz")[1])
    (kubelet / "plugins").mkdir()
    process.wait(lambda: "reg.sock: cannot serve" in process.get("/readyz")[1])
    assert not (kubelet / f"plugins/{NAME}/dra.sock").exists()
    blocked.rmdir()
    process.wait(blocked.is_socket)
    with dialled(register(place)) as channel:
        stub = DRAPluginStub(channel)
        claim = dra.Claim(namespace="team", name="pod-npu", uid="u-1")
        asked = dra.NodePrepareResourcesRequest(claims=[claim])
        answer = stub.NodePrepareResources(asked, wait_for_ready=True, timeout=30)
    assert answer.claims["u-1"].error == ""
    process.wait(process.ready)
    assert process.metric('npu_device_plugin_loop_errors_total{loop="kubelet"}') == 0


def test_doctor_knows_drivers(
    place: Path, board: Path, driver: Callable[[], PluginProcess]
) -> None:
    """Served or not, by the sockets; what is offered is no matter of this node."""
    process = driver()
    found = diagnose(f"--root={board}", f"--kubelet-dir={place / 'kubelet'}")
    assert found.levels["plugin"] == "ok", found.text
    assert f"serves driver {NAME}" in found.text
    assert "by claims" in found.text

    process.end(signal.SIGKILL)
    found = diagnose(f"--root={board}", f"--kubelet-dir={place / 'kubelet'}")
    assert (found.code, found.levels["plugin"]) == (1, "fail")
    assert "Connection refused" in found.text

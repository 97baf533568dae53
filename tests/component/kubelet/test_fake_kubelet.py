"""The fake kubelet does what kubelets do, above all what plugins find surprising."""

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import h2.config
import h2.connection
import h2.events
import pytest

from kubelet._proto import deviceplugin_v1beta1_pb2 as messages
from kubelet._proto.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginServicer,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)
from kubelet.paths import pod_resources_socket
from kubelet.podresources import PodResourcesClient, PodResourcesError
from tests.component.fake_kubelet import (
    AUTHORITIES,
    AdmissionError,
    FakeKubelet,
    RateLimit,
    admission,
    fixtures,
)

place = fixtures.place
kubelet = fixtures.kubelet
RESOURCE = "example.com/device"


class Script(DevicePluginServicer):
    """A plugin without a mind: what it lists and prefers is set by the test."""

    def __init__(self, *ids: str, preferred: Sequence[str] | None = None) -> None:
        self.ids = ids
        self.preferred = preferred
        self.allocated: list[tuple[str, ...]] = []
        self.refuses = False
        self.done = threading.Event()

    def GetDevicePluginOptions(  # noqa: N802 - named by the API
        self, request: messages.Empty, context: grpc.ServicerContext
    ) -> messages.DevicePluginOptions:
        """Ask for preferences where there are any."""
        del request, context
        wanted = self.preferred is not None
        return messages.DevicePluginOptions(get_preferred_allocation_available=wanted)

    def ListAndWatch(  # noqa: N802 - named by the API
        self, request: messages.Empty, context: grpc.ServicerContext
    ) -> Iterator[messages.ListAndWatchResponse]:
        """Send one list."""
        del request
        context.add_callback(self.done.set)
        devices = [messages.Device(ID=identifier, health="Healthy") for identifier in self.ids]
        yield messages.ListAndWatchResponse(devices=devices)
        self.done.wait(30)

    def GetPreferredAllocation(  # noqa: N802 - named by the API
        self, request: messages.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> messages.PreferredAllocationResponse:
        """Prefer what the test says, whatever is available."""
        del request, context
        answer = messages.ContainerPreferredAllocationResponse(deviceIDs=self.preferred)
        return messages.PreferredAllocationResponse(container_responses=[answer])

    def Allocate(  # noqa: N802 - named by the API
        self, request: messages.AllocateRequest, context: grpc.ServicerContext
    ) -> messages.AllocateResponse:
        """Note what is allocated."""
        if self.refuses:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today")
        ids = tuple(request.container_requests[0].devices_ids)
        self.allocated.append(ids)
        answer = messages.ContainerAllocateResponse(envs={"IDS": " ".join(ids)})
        return messages.AllocateResponse(container_responses=[answer])


def register(kubelet: FakeKubelet, endpoint: str, **changes: str) -> None:
    """Call Register; raises grpc.RpcError as the kubelet refuses."""
    values = {"version": "v1beta1", "resource_name": RESOURCE, "endpoint": endpoint} | changes
    with grpc.insecure_channel(f"unix:{kubelet.plugins / 'kubelet.sock'}") as channel:
        request = messages.RegisterRequest(**values)  # type: ignore[arg-type]
        RegistrationStub(channel).Register(request, timeout=20)


@contextmanager
def served(kubelet: FakeKubelet, script: Script, name: str = "script.sock") -> Iterator[Script]:
    """Serve and register a plugin."""
    server = grpc.server(ThreadPoolExecutor(4))
    add_DevicePluginServicer_to_server(script, server)
    server.add_insecure_port(f"unix:{kubelet.plugins / name}")
    server.start()
    try:
        register(kubelet, name)
        kubelet.wait(lambda: list(kubelet.devices(RESOURCE)) == list(script.ids))
        yield script
    finally:
        script.done.set()
        server.stop(0).wait(5)


def test_first_answer_is_given_for_ever(kubelet: FakeKubelet) -> None:
    """Neither a container's restart nor the kubelet's asks the plugin again."""
    kubelet.start()
    with served(kubelet, Script("a", "b")) as script:
        answer = kubelet.pods.admit("pod", RESOURCE)

        kubelet.restart()

        assert answer is not None
        assert kubelet.pods.restart_container("pod") == answer
        assert kubelet.pods.readmit("pod", running=True) == answer
        assert script.allocated == [("a",)]
    (entry,) = json.loads((kubelet.plugins / "kubelet_internal_checkpoint").read_text())["Data"][
        "PodDeviceEntries"
    ]
    assert entry["DeviceIDs"] == {"-1": ["a"]}


def test_after_a_power_cycle_a_pod_needs_its_plugin(kubelet: FakeKubelet) -> None:
    """Without the plugin a Pod that does not run is refused, with it taken back."""
    kubelet.start()
    with served(kubelet, Script("a")):
        kubelet.pods.admit("early", RESOURCE)
    kubelet.restart()

    with pytest.raises(AdmissionError, match="no healthy devices present"):
        kubelet.pods.readmit("early", running=False)
    with served(kubelet, Script("a"), "second.sock") as script:
        kubelet.pods.admit("late", RESOURCE)
    kubelet.restart()
    with served(kubelet, Script("a"), "third.sock"):
        assert kubelet.pods.readmit("late", running=False).envs["IDS"] == "a"

    assert script.allocated == [("a",)]


def first_headers(listener: socket.socket) -> dict[str, str]:
    """Accept one HTTP/2 connection and return the headers of its first request."""
    listener.settimeout(20)
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(20)
        protocol = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        protocol.initiate_connection()
        connection.sendall(protocol.data_to_send())
        while data := connection.recv(65536):
            for event in protocol.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    return {str(name): str(value) for name, value in event.headers}
            connection.sendall(protocol.data_to_send())
    return {}


HELD = frozenset({"a"})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"held": HELD, "count": 2, "running_at_start": True}, "changed request for resource"),
        ({"held": HELD, "healthy": None, "running_at_start": True}, None),
        ({"held": HELD, "healthy": None}, "cannot allocate unregistered device"),
        ({"held": HELD, "healthy": []}, "no healthy devices present"),
        ({"held": HELD, "healthy": ["b"]}, "previously allocated devices are no longer healthy"),
        ({"held": HELD, "healthy": ["a"]}, None),
        ({"held": None, "healthy": []}, "no healthy devices present"),
    ],
)
def test_checks_come_in_the_order_of_the_kubelet(
    changes: dict[str, object], text: str | None
) -> None:
    """Another request fails before all else, a running container passes before health is asked."""
    values: dict[str, object] = {
        "pod": "p",
        "container": "c",
        "count": 1,
        "healthy": ["a"],
        "running_at_start": False,
    }

    def check() -> int:
        return admission.needed(RESOURCE, **(values | changes))  # type: ignore[arg-type]

    if text is None:
        assert check() == 0
    else:
        with pytest.raises(AdmissionError, match=text):
            check()


def test_unknown_resource_starts_the_pod_without_device(kubelet: FakeKubelet) -> None:
    """Nobody registered it and no checkpoint knows it: the Pod runs, with nothing."""
    kubelet.start()

    assert kubelet.pods.admit("pod", RESOURCE) is None


@pytest.mark.parametrize(
    ("preferred", "given"), [(("c", "a"), "c a"), (("c",), "c a"), (("x", "b"), "b a"), ((), "a b")]
)
def test_preferred_devices_are_taken_and_the_rest_filled_up(
    kubelet: FakeKubelet, preferred: tuple[str, ...], given: str
) -> None:
    """An answer that is short, or names what is not free, is completed by the kubelet."""
    kubelet.start()
    with served(kubelet, Script("a", "b", "c", preferred=preferred)):
        answer = kubelet.pods.admit("pod", RESOURCE, 2)

    assert answer is not None
    assert answer.envs["IDS"] == given


def test_devices_are_exclusive_until_the_pod_is_gone(kubelet: FakeKubelet) -> None:
    """What one Pod holds no other gets; PodResources tells who holds it."""
    kubelet.start()
    client = PodResourcesClient(pod_resources_socket(kubelet.plugins.parent))
    with served(kubelet, Script("a")):
        kubelet.pods.admit("first", RESOURCE)
        with pytest.raises(AdmissionError, match="Requested: 1, Available: 0"):
            kubelet.pods.admit("second", RESOURCE)
        assert [(e.pod, e.device_ids) for e in client.list(5)] == [("first", ("a",))]

        kubelet.pods.remove("first")

        assert kubelet.pods.admit("second", RESOURCE) is not None


def test_refusal_of_the_plugin_is_quoted(kubelet: FakeKubelet) -> None:
    """Its text ends up in the Pod's status, and nothing is allocated."""
    kubelet.start()
    with served(kubelet, Script("a")) as script:
        script.refuses = True
        with pytest.raises(AdmissionError, match="code = FAILED_PRECONDITION desc = not today"):
            kubelet.pods.admit("pod", RESOURCE)

    assert kubelet.pods.held() == ()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"version": "v1"}, 'requested API version "v1" is not supported by kubelet'),
        ({"resource_name": "device"}, 'the ResourceName "device" is invalid'),
        ({"resource_name": "kubernetes.io/device"}, "is invalid"),
    ],
)
def test_wrong_registrations_are_refused(
    kubelet: FakeKubelet, changes: dict[str, str], text: str
) -> None:
    """With the kubelet's own words."""
    kubelet.start()

    with pytest.raises(grpc.RpcError) as refusal:
        register(kubelet, "nobody.sock", **changes)

    assert text in str(refusal.value)


@pytest.mark.parametrize("key", AUTHORITIES)
def test_authorities_are_those_of_old_and_new_kubelets(kubelet: FakeKubelet, key: str) -> None:
    """What goes over the wire as ``:authority`` is what the key says."""
    kubelet.start()
    kubelet.authority = key
    path = kubelet.plugins / "raw.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(first_headers, listener)
            with pytest.raises(grpc.RpcError, match="failed to get device plugin options"):
                register(kubelet, path.name)

    expected = {"since 1.26": "localhost", "path": str(path), "none": ""}
    assert sent.result().get(":authority", "") == expected.get(key, str(path).replace("/", "%2F"))


def test_late_clean_up_hits_the_successor(kubelet: FakeKubelet) -> None:
    """The race of kubelets before 1.37: registered and lost, although both plugins did well."""
    kubelet.start()
    kubelet.races = True
    with served(kubelet, Script("a"), "first.sock"):
        pass
    with served(kubelet, Script("a"), "second.sock"):
        kubelet.wait_for_devices(RESOURCE, {"a": "Unhealthy"})
    with served(kubelet, Script("a"), "third.sock"):
        kubelet.wait_for_devices(RESOURCE, {"a": "Healthy"})


def test_calls_of_pod_resources_are_limited() -> None:
    """Ten at once, then a hundred a second."""
    now = 0.0
    limit = RateLimit(monotonic=lambda: now)
    burst = [limit.allows() for _ in range(12)]
    now = 0.02

    assert burst == [True] * 10 + [False] * 2
    assert [limit.allows() for _ in range(3)] == [True, True, False]


def test_client_is_told_of_the_limit(kubelet: FakeKubelet) -> None:
    """The refusal is the kubelet's, by code and text."""
    kubelet.start()
    kubelet.lister.limit = RateLimit(burst=1, per_second=0.001)
    client = PodResourcesClient(pod_resources_socket(kubelet.plugins.parent))
    client.list(5)

    with pytest.raises(PodResourcesError, match="rejected by rate limit") as refusal:
        client.list(5)

    assert refusal.value.reason == "rate_limited"


@pytest.mark.parametrize("garbage", [b"\xff" * 64, b"\x0a\x7f", b"\x0a\x02\x0a\xff"])
def test_garbage_of_pod_resources_is_an_error(kubelet: FakeKubelet, garbage: bytes) -> None:
    """What is no message is no empty answer either."""
    kubelet.start()
    kubelet.lister.garbage = garbage
    client = PodResourcesClient(pod_resources_socket(kubelet.plugins.parent))

    with pytest.raises(PodResourcesError) as failure:
        client.list(5)

    assert failure.value.reason == "failed"

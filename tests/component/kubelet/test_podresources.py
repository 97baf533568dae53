"""The PodResources client against a served API."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from kubelet.paths import pod_resources_socket
from kubelet.podresources import (
    RATE_LIMIT_PAUSE_SECONDS,
    PodDevices,
    PodResourcesClient,
    PodResourcesError,
)
from tests.component.fake_kubelet import FakeKubelet, Held


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def kubelet() -> Iterator[FakeKubelet]:
    """A fake kubelet in a directory with a short path, not started yet."""
    directory = Path(tempfile.mkdtemp(prefix="npu-", dir="/tmp"))
    kubelet = FakeKubelet(directory)
    yield kubelet
    kubelet.stop()
    shutil.rmtree(directory)


@pytest.fixture
def clock() -> Clock:
    """Time as the client sees it."""
    return Clock()


@pytest.fixture
def client(kubelet: FakeKubelet, clock: Clock) -> PodResourcesClient:
    """A client of the fake kubelet."""
    return PodResourcesClient(pod_resources_socket(kubelet.pod_resources.parent), monotonic=clock)


def test_entries_of_one_resource_are_merged(
    kubelet: FakeKubelet, client: PodResourcesClient
) -> None:
    """The kubelet sends one entry per device; callers get one per container and resource."""
    kubelet.held = (Held("a", "pod", "main", "rockchip.com/npu", ("npu10", "npu2")),)
    kubelet.start()

    (entry,) = client.list(2.0)

    assert entry.device_ids == ("npu2", "npu10")
    assert (entry.namespace, entry.pod, entry.container) == ("a", "pod", "main")


def test_answer_above_the_default_limit_is_received(
    kubelet: FakeKubelet, client: PodResourcesClient
) -> None:
    """Every Pod of the node is in the answer, which may exceed gRPC's 4 MiB."""
    ids = tuple(f"npu{number}-{'x' * 200}" for number in range(25_000))
    kubelet.held = (Held("a", "pod", "main", "example.com/many", ids),)
    kubelet.start()

    (entry,) = client.list(10.0)

    assert len(entry.device_ids) == 25_000


def test_missing_socket_is_explained(client: PodResourcesClient) -> None:
    """No kubelet, or the directory is not mounted: said without waiting."""
    with pytest.raises(PodResourcesError, match="mounted") as raised:
        client.list(2.0)

    assert raised.value.reason == "no_socket"


def test_one_client_survives_a_kubelet_restart(
    kubelet: FakeKubelet, client: PodResourcesClient
) -> None:
    """The new socket is found."""
    kubelet.start()
    assert client.list(2.0) == ()

    kubelet.restart()
    kubelet.held = (Held("a", "pod", "main", "rockchip.com/npu", ("npu0",)),)
    reasons: list[str] = []
    answers: list[tuple[PodDevices, ...]] = []

    def asked() -> bool:
        try:
            answers.append(client.list(2.0))
        except PodResourcesError as error:
            reasons.append(error.reason)
        return bool(answers)

    kubelet.wait(asked)

    assert answers[-1][0].device_ids == ("npu0",)
    assert set(reasons) <= {"unavailable"}


def test_rate_limit_pauses_calls(
    kubelet: FakeKubelet, client: PodResourcesClient, clock: Clock
) -> None:
    """After "too many" nothing is sent for a while; then the kubelet is asked again."""
    kubelet.lister.failure = (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "rejected by rate limit",
    )
    kubelet.start()
    for _ in range(3):
        with pytest.raises(PodResourcesError) as raised:
            client.list(2.0)
        assert raised.value.reason == "rate_limited"
    assert kubelet.lister.list_calls == 1

    kubelet.lister.failure = None
    clock.now += RATE_LIMIT_PAUSE_SECONDS

    assert client.list(2.0) == ()
    assert kubelet.lister.list_calls == 2


def test_socket_without_server_is_unavailable(
    kubelet: FakeKubelet, client: PodResourcesClient
) -> None:
    """What a killed kubelet leaves is a reason of its own."""
    kubelet.start()
    kubelet.stop(leave_sockets=True)

    with pytest.raises(PodResourcesError) as raised:
        client.list(2.0)

    assert raised.value.reason == "unavailable"

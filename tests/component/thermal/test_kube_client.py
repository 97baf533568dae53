"""The API client: time limits, errors, tokens, paging, watches."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from kubernetes.client import Configuration

from tests.component.fake_apiserver import FakeApiServer, RefusedError, Seen
from tests.component.thermal.guard_rig import client_of
from thermal.api import NODES, STRATEGIC_PATCH
from thermal.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    GoneError,
    GuardError,
    NotFoundError,
    RejectedError,
    UnavailableError,
)
from thermal.kube import Client, Limits
from thermal.tokens import FileToken, FixedToken


@pytest.fixture
def client(server: FakeApiServer) -> Client:
    """Connect to the fake server."""
    return client_of(server)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (403, ForbiddenError),
        (404, NotFoundError),
        (409, ConflictError),
        (410, GoneError),
        (422, RejectedError),
        (429, UnavailableError),
        (500, UnavailableError),
        (503, UnavailableError),
    ],
)
def test_every_refusal_has_its_type(
    server: FakeApiServer, client: Client, code: int, kind: type[ApiError]
) -> None:
    """Callers decide by type; the server's own words are kept."""

    def refuse(_seen: Seen) -> None:
        raise RefusedError(code, "because " + "x" * 1000)

    server.refuse = refuse

    with pytest.raises(kind, match="because") as caught:
        client.patch(f"{NODES}/n1", {})

    assert type(caught.value) is kind
    assert caught.value.status == code
    assert len(caught.value.detail) <= 256


@pytest.mark.parametrize(
    ("asked", "taken"),
    [("3", 3.0), ("86400", 60.0), ("inf", 60.0), ("nan", None), ("-5", None), ("soon", None)],
)
def test_pause_that_a_server_asks_for_has_a_limit(
    server: FakeApiServer, client: Client, asked: str, taken: float | None
) -> None:
    """Whatever a proxy says: boards get hot meanwhile."""

    def refuse(_seen: Seen) -> None:
        raise RefusedError(429, "later")

    server.refuse, server.retry_after = refuse, asked
    with pytest.raises(UnavailableError) as caught:
        client.get(f"{NODES}/n1")

    assert caught.value.retry_after_seconds == taken


CALLS: dict[str, Callable[[Client], object]] = {
    "get": lambda client: client.get(f"{NODES}/n1"),
    "list": lambda client: client.list(NODES),
    "patch": lambda client: client.patch(f"{NODES}/n1", {}),
    "create": lambda client: client.create(NODES, {"metadata": {"name": "n9"}}),
}


@pytest.mark.parametrize("call", list(CALLS))
def test_a_mute_server_costs_one_time_limit(server: FakeApiServer, call: str) -> None:
    """No retries behind our back: one request, one limit, a typed error."""
    limits = Limits(connect_seconds=0.3, read_seconds=0.3, list_seconds=0.3)
    client = client_of(server, limits)
    server.mute.set()

    with pytest.raises(UnavailableError):
        CALLS[call](client)

    assert len(server.requests) == 1


def test_a_closed_port_is_unavailable() -> None:
    """Network failures are in the same family as refusals."""
    configuration = Configuration()
    configuration.host = "http://127.0.0.1:9"
    client = Client(configuration, FixedToken())

    with pytest.raises(UnavailableError):
        client.get(NODES)


def test_a_changed_token_is_read_again(server: FakeApiServer, tmp_path: Path) -> None:
    """The kubelet rotates the file; a refused token is read again at once and once."""
    file = tmp_path / "token"
    file.write_text(f"{server.token}\n")
    configuration = Configuration()
    configuration.host = server.url
    client = Client(configuration, FileToken(file))
    client.get(NODES)

    server.token = "token-2"  # noqa: S105 (of a fake)
    file.write_text(server.token)
    client.get(NODES)
    server.token = "token-3"  # noqa: S105 (of a fake)

    with pytest.raises(ForbiddenError):
        client.get(NODES)
    assert len(server.requests) == 3


def test_lists_are_read_page_by_page(server: FakeApiServer, client: Client) -> None:
    """All items arrive, whatever the page size."""
    server.page_size = 1

    listing = client.list(NODES)

    assert [item["metadata"]["name"] for item in listing.items] == ["n1", "n2"]
    assert "limit" in server.requests[0].query
    assert len(server.requests) == 2


def test_patch_kinds_and_dry_runs_are_as_asked(server: FakeApiServer, client: Client) -> None:
    """The content type is explicit, and a dry run stores nothing."""
    before = server.node("n1")

    client.patch(f"{NODES}/n1", {"metadata": {"labels": {"x": "y"}}}, dry_run=True)
    client.patch(f"{NODES}/n1/status", {"status": {}}, kind=STRATEGIC_PATCH)

    assert [seen.content_type for seen in server.requests] == [
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    ]
    assert server.node("n1") == before


def test_a_watch_yields_changes_and_can_be_stopped(server: FakeApiServer, client: Client) -> None:
    """Stopping from another thread ends a blocked read without an error."""
    version = client.list(NODES).resource_version
    watching = client.watch(NODES, version, seconds=30)
    events = watching.events()
    server.add_node("n3")
    first = next(events)
    stopper = threading.Timer(0.2, watching.stop)
    stopper.start()

    assert first["type"] == "ADDED"
    assert list(events) == []
    stopper.join()


def test_a_client_outside_a_pod_says_what_to_do() -> None:
    """No service account: one line that names the option."""
    with pytest.raises(GuardError, match="--kubeconfig"):
        Client.in_cluster({})


def test_a_kubeconfig_is_used(server: FakeApiServer, tmp_path: Path) -> None:
    """Server and token of the current context."""
    file = tmp_path / "config"
    file.write_text(server.kubeconfig())

    client = Client.from_kubeconfig(file)

    assert client.get(f"{NODES}/n1")["metadata"]["name"] == "n1"
    with pytest.raises(GuardError, match="missing"):
        Client.from_kubeconfig(tmp_path / "missing")


@pytest.mark.parametrize("content", ["[]", "a: [", "\x00", "contexts: 1\ncurrent-context: x\n"])
def test_what_is_no_kubeconfig_is_one_line(tmp_path: Path, content: str) -> None:
    """The file is named, whatever the library stumbles over."""
    file = tmp_path / "config"
    file.write_text(content)

    with pytest.raises(GuardError, match="config") as raised:
        Client.from_kubeconfig(file)

    assert "\n" not in str(raised.value)


def test_an_in_cluster_client_verifies_the_server(tmp_path: Path) -> None:
    """IPv6 service addresses are bracketed; the cluster's CA is required."""
    (tmp_path / "token").write_text("t")
    with pytest.raises((GuardError, OSError)):
        Client.in_cluster({"KUBERNETES_SERVICE_HOST": "::1"}, account=tmp_path).get(NODES)

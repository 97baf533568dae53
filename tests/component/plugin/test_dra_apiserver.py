"""The one question to the API server, and every way in which it is not answered."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from daemon.http import HttpServer, Request, Response
from daemon.tls import TlsFiles
from plugin.dra.apiserver import ApiServer
from plugin.dra.prepared import Share
from plugin.dra.preparing import ClaimRef, PrepareError, UnreachableError

DRIVER = "npu.rockchip.com"
CLAIM = ClaimRef(namespace="team", name="c", uid="u-1")
PATH = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/c"
RESULT = {"driver": DRIVER, "pool": "node-1", "device": "npu0-s1", "request": "npu"}
GOOD = {
    "metadata": {"uid": "u-1"},
    "status": {"allocation": {"devices": {"results": [RESULT]}}},
}


def certificate(folder: Path) -> TlsFiles:
    """Make a certificate of 127.0.0.1."""
    folder.mkdir(exist_ok=True)
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-subj", "/CN=api"),
            *("-pkeyopt", "ec_paramgen_curve:P-256", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", "key.pem", "-out", "ca.crt"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    (folder / "token").write_text("word")
    return TlsFiles(certificate=str(folder / "ca.crt"), key=str(folder / "key.pem"))


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Callable[[Response], ApiServer]]:
    """Start API servers that give one answer."""
    servers: list[HttpServer] = []

    def start(response: Response) -> ApiServer:
        def answer(request: Request) -> Response:
            assert request.headers["authorization"] == "Bearer word"
            return response

        tls = certificate(tmp_path / "account")
        server = HttpServer("127.0.0.1:0", {PATH: answer}, tls=tls)
        servers.append(server)
        server.start()
        environment = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(server.port),
        }
        return ApiServer(account=tmp_path / "account", environment=environment)

    yield start
    for server in servers:
        server.stop()


def shares(api: ApiServer) -> tuple[Share, ...]:
    """Ask."""
    return api.shares(CLAIM, driver=DRIVER, pool="node-1")


def test_the_devices_of_a_claim_are_told(api: Callable[[Response], ApiServer]) -> None:
    """By the token of the account and the authority beside it."""
    answer = Response(body=json.dumps(GOOD).encode())
    assert shares(api(answer)) == (Share(device="npu0-s1", request="npu"),)


@pytest.mark.parametrize("status", [429, 500, 503, 504])
def test_a_server_that_cannot_answer_now_has_not_said_no(
    api: Callable[[Response], ApiServer], status: int
) -> None:
    """After a power cut of everything it is busy, and the driver goes by its record."""
    with pytest.raises(UnreachableError, match=f"status {status}"):
        shares(api(Response(body=b"{}", status=status)))


@pytest.mark.parametrize(
    ("status", "reason"), [(400, "api_refused"), (403, "api_refused"), (404, "unknown_claim")]
)
def test_a_refusal_is_one(api: Callable[[Response], ApiServer], status: int, reason: str) -> None:
    """With a reason of its own."""
    with pytest.raises(PrepareError) as error:
        shares(api(Response(body=b"{}", status=status)))
    assert error.value.reason == reason


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"[" * 100_000])
def test_garbage_is_no_answer(api: Callable[[Response], ApiServer], body: bytes) -> None:
    """Something else is listening there, such as a proxy."""
    with pytest.raises(UnreachableError):
        shares(api(Response(body=body)))


@pytest.mark.parametrize("gone", ["token", "ca.crt"])
def test_an_account_that_is_not_there_yet_is_no_answer(
    api: Callable[[Response], ApiServer], tmp_path: Path, gone: str
) -> None:
    """Nor is a server of another authority."""
    server = api(Response(body=json.dumps(GOOD).encode()))
    certificate(tmp_path / "other")
    (tmp_path / "other/ca.crt").replace(tmp_path / "account/ca.crt")
    with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
        shares(server)
    (tmp_path / "account" / gone).unlink()
    with pytest.raises(UnreachableError, match="FileNotFoundError"):
        shares(server)

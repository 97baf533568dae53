"""Pushing to a real registry: what arrives, what is not sent again, who is let in."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from ci import registry as server
from ci.cache import cache_dir
from images import index, registry
from images.layer import write_layer
from images.oci import Process, compose
from images.tree import File

PROCESS = Process(entrypoint=("/p",), environment={}, user="65532:65532")
ACCEPT = "application/vnd.oci.image.index.v1+json"


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    """Give the address of an open registry."""
    with server.serving(cache_dir()) as address:
        yield address


def images(folder: Path, host: str) -> index.Index:
    """Return an image for two architectures, with a layer they share."""
    base = write_layer("base", {"base": File(b"base")}, folder / "base")
    return index.compose(
        [
            compose(
                f"{host}/team/plugin:1.2.3",
                arch,
                [base, write_layer(arch, {arch: File(arch.encode())}, folder / arch)],
                PROCESS,
                {},
            )
            for arch in ("amd64", "arm64")
        ]
    )


def fetched(host: str, path: str) -> bytes:
    """GET something of a registry."""
    request = urllib.request.Request(f"http://{host}{path}", headers={"Accept": ACCEPT})
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 (loopback)
        data: bytes = answer.read()
        return data


def test_what_was_pushed_can_be_pulled(host: str, tmp_path: Path) -> None:
    """The tag leads to the index, by way of its digest to every layer; a second push sends none."""
    wanted = images(tmp_path, host)
    target = registry.Registry(registry.place(f"{host}/team"))

    lines = list(target.push(wanted))

    assert lines[-1] == f"{host}/team/plugin:1.2.3@{wanted.digest}"
    assert sum("layer" in line for line in lines) == 3
    assert fetched(host, "/v2/team/plugin/manifests/1.2.3") == wanted.content
    for one in json.loads(wanted.content)["manifests"]:
        manifest = json.loads(fetched(host, f"/v2/team/plugin/manifests/{one['digest']}"))
        for blob in (manifest["config"], *manifest["layers"]):
            assert len(fetched(host, f"/v2/team/plugin/blobs/{blob['digest']}")) == blob["size"]
    assert len(list(target.push(wanted))) == 1


def test_a_login_is_needed_and_used(tmp_path: Path) -> None:
    """Without one the answer of the registry is told; with the one that was stored it works."""
    with server.serving(cache_dir(), credentials="robot:secret") as host:
        wanted = images(tmp_path, host)
        where = registry.place(f"{host}/team")
        with pytest.raises(registry.PushError, match="401"):
            list(registry.Registry(where).push(wanted))
        file = tmp_path / "config.json"
        file.write_text(
            json.dumps({"auths": {host: {"auth": registry.encoded("robot", "secret")}}})
        )
        login = registry.stored_login(host, {"DOCKER_CONFIG": str(tmp_path)})
        assert list(registry.Registry(where, login).push(wanted))[-1].endswith(wanted.digest)


class _Storage(BaseHTTPRequestHandler):
    """A registry that keeps blobs elsewhere: it has all, or none and no place for them."""

    protocol_version = "HTTP/1.1"
    has: ClassVar[bool] = True
    put: ClassVar[list[str]] = []

    def _answer(self, status: int, **headers: str) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        self.send_response(status)
        for name, value in {"Content-Length": "0", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def do_HEAD(self) -> None:
        elsewhere = "https://storage.example.invalid/blob?signed"
        self._answer(307 if self.has else 404, Location=elsewhere)

    def do_POST(self) -> None:
        self._answer(202)

    def do_PUT(self) -> None:
        self.put.append(self.path)
        self._answer(201)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


def test_registry_on_object_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers with the place of a blob that it has; one that names no place is told."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Storage) as storage:
        threading.Thread(target=storage.serve_forever, daemon=True).start()
        host = f"127.0.0.1:{storage.server_address[1]}"
        wanted = images(tmp_path, host)
        target = registry.Registry(registry.place(f"{host}/team"))

        assert len(list(target.push(wanted))) == 1
        assert {path.rpartition("/")[0] for path in _Storage.put} == {"/v2/team/plugin/manifests"}
        monkeypatch.setattr(_Storage, "has", False)
        with pytest.raises(registry.PushError, match="does not say where"):
            list(target.push(wanted))
        storage.shutdown()


def test_no_registry_is_told_by_name(tmp_path: Path) -> None:
    """A wrong address ends with the address, not with a traceback."""
    where = registry.place("127.0.0.1:1/team")
    with pytest.raises(registry.PushError, match=r"127\.0\.0\.1:1"):
        list(registry.Registry(where).push(images(tmp_path, "127.0.0.1:1")))

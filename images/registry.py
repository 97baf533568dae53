"""Push images to a registry (OCI distribution specification 1.1).

Blobs that the registry has are not sent again. Credentials are those that ``docker login``,
``podman login`` or ``helm registry login`` wrote; helpers that keep them elsewhere are not asked.
"""

import base64
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final
from urllib.parse import urlencode, urljoin, urlsplit

import urllib3

from images.index import INDEX, MANIFEST, Index
from images.layer import digest_of

_TIMEOUT: Final = urllib3.Timeout(connect=10, read=300)
_UNAUTHORIZED = 401
_NOT_FOUND = 404
_LOOPBACK = re.compile(r"^(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?$")
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_QUOTED_BYTES = 300


class PushError(RuntimeError):
    """A registry did not take what it was given; says which request and its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where images go: ``host`` with port, and the ``path`` in front of their names."""

    host: str
    path: str

    @property
    def base(self) -> str:
        """The address of the registry; only one on this machine is spoken to without TLS."""
        return f"{'http' if _LOOPBACK.match(self.host) else 'https'}://{self.host}"

    def repository(self, reference: str) -> str:
        """Return the repository for an image by the last part of its name."""
        name = reference.rpartition("/")[2].partition(":")[0]
        return f"{self.path}/{name}" if self.path else name


def place(text: str) -> Place:
    """Read ``registry.example:5000/team``."""
    host, _, path = text.removeprefix("https://").strip("/").partition("/")
    return Place(host=host, path=path)


def stored_login(host: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return ``user:password`` for a registry in base64, None where nobody logged in."""
    home = Path(environment.get("HOME", "/"))
    files = [
        Path(environment.get("DOCKER_CONFIG", home / ".docker")) / "config.json",
        Path(environment.get("REGISTRY_AUTH_FILE", home / ".config/containers/auth.json")),
    ]
    for file in files:
        with suppress(OSError, ValueError, AttributeError):
            login = json.loads(file.read_text()).get("auths", {}).get(host, {}).get("auth")
            if login:
                return str(login)
    return None


class Registry:
    """One registry, spoken to by one program."""

    def __init__(self, where: Place, login: str | None = None) -> None:
        self._where = where
        self._login = login
        self._authorization: dict[str, str] = {}
        self._pool = urllib3.PoolManager(retries=False, timeout=_TIMEOUT)

    def push(self, index: Index) -> Iterator[str]:
        """Send an index and all it names, and tag it; yield a line for each thing that is sent."""
        repository = self._where.repository(index.reference)
        for image in index.images:
            for layer in image.layers:
                if not self._has(repository, layer.digest):
                    yield f"{repository}: layer {layer.name} {layer.compressed_bytes / 1e6:.1f} MB"
                    with layer.path.open("rb") as content:
                        self._send(repository, layer.digest, content, layer.compressed_bytes)
            self._small(repository, image.config)
            self._manifest(repository, digest_of(image.manifest), image.manifest, MANIFEST)
        tag = index.reference.rpartition(":")[2]
        self._manifest(repository, tag, index.content, INDEX)
        yield f"{self._where.host}/{repository}:{tag}@{index.digest}"

    def _has(self, repository: str, digest: str) -> bool:
        """Tell whether a blob is there; registries on object storage say where in place of it."""
        accept = (200, 302, 307, 404)
        answer = self._request("HEAD", f"/v2/{repository}/blobs/{digest}", accept=accept)
        return answer.status != _NOT_FOUND

    def _small(self, repository: str, data: bytes) -> None:
        digest = digest_of(data)
        if not self._has(repository, digest):
            self._send(repository, digest, data, len(data))

    def _send(self, repository: str, digest: str, body: IO[bytes] | bytes, size: int) -> None:
        path = f"/v2/{repository}/blobs/uploads/"
        begun = self._request("POST", path, accept=(202,))
        if "Location" not in begun.headers:
            raise PushError(f"POST {path}: the answer does not say where to upload to")
        location = urljoin(self._where.base, begun.headers["Location"])
        joint = "&" if urlsplit(location).query else "?"
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        target = f"{location}{joint}{urlencode({'digest': digest})}"
        self._request("PUT", target, body=body, headers=headers, accept=(201,))

    def _manifest(self, repository: str, name: str, data: bytes, media_type: str) -> None:
        headers = {"Content-Type": media_type}
        path = f"/v2/{repository}/manifests/{name}"
        answer = self._request("PUT", path, body=data, headers=headers, accept=(201,))
        stored = answer.headers.get("Docker-Content-Digest", digest_of(data))
        if stored != digest_of(data):
            raise PushError(f"PUT {path}: stored as {stored}, sent {digest_of(data)}")

    def _request(
        self,
        method: str,
        target: str,
        *,
        accept: Sequence[int],
        body: IO[bytes] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> urllib3.BaseHTTPResponse:
        url = urljoin(self._where.base, target)
        # A login is for this registry; an upload may be told to go to another machine.
        own = urlsplit(url).netloc == self._where.host
        try:
            for again in (False, True):
                sent = {**(headers or {}), **(self._authorization if own else {})}
                if again and body is not None and not isinstance(body, bytes):
                    body.seek(0)
                answer = self._pool.request(method, url, body=body, headers=sent, redirect=False)
                if again or not own or answer.status != _UNAUTHORIZED:
                    break
                self._authorization = self._authorize(answer.headers.get("WWW-Authenticate", ""))
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise PushError(f"{method} {url}: {error}") from error
        if answer.status not in accept:
            said = answer.data[:_QUOTED_BYTES].decode(errors="replace").strip()
            raise PushError(f"{method} {url}: {answer.status} {said}")
        return answer

    def _authorize(self, challenge: str) -> dict[str, str]:
        """Return the header that answers a challenge: the login itself, or a token got for it."""
        basic = {"Authorization": f"Basic {self._login}"} if self._login else {}
        if not challenge.lower().startswith("bearer "):
            return basic
        asked = dict(_PARAMETER.findall(challenge))
        realm = asked.pop("realm", "")
        answer = self._pool.request("GET", f"{realm}?{urlencode(asked)}", headers=basic)
        try:
            tokens = json.loads(answer.data)
            return {"Authorization": f"Bearer {tokens.get('token') or tokens['access_token']}"}
        except (ValueError, KeyError, AttributeError) as error:
            raise PushError(f"GET {realm}: {answer.status}, no token; log in first") from error


def encoded(user: str, password: str) -> str:
    """Return a login as it is stored."""
    return base64.b64encode(f"{user}:{password}".encode()).decode()

"""The only module that talks to the API server.

Plain JSON objects, no typed models; a connect and a read time limit on every call, because the
client library has none; no retries inside it, because each would multiply the limit; one family of
errors (``thermal.errors``) for refused requests and for network failures. Callers decide about
trying again.
"""

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import urllib3
import yaml
from kubernetes.client import Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import kube_config
from kubernetes.config.config_exception import ConfigException

from daemon.version import VERSION
from thermal.api import MERGE_PATCH, Listing, Query
from thermal.errors import ApiError, ForbiddenError, GuardError, UnavailableError, api_error
from thermal.objects import Json
from thermal.tokens import FileToken, FixedToken, Token

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PAGE_SIZE = 250
_BODY_LIMIT_BYTES = 64 << 20
_LINE_LIMIT_BYTES = 8 << 20
_CHUNK_BYTES = 1 << 16
_UNAUTHORIZED = 401
#: A proxy may ask for an hour; the API server itself asks for seconds.
_LONGEST_PAUSE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a call may take: to connect, to be answered, and a page of a list to be answered.

    A watch that stays silent for ``stall_seconds`` after the server should have ended it is dead.
    Connecting and answering together must stay below the time between the end of a leader's right
    to write and the end of its Lease.
    """

    connect_seconds: float = 2.0
    read_seconds: float = 3.0
    list_seconds: float = 20.0
    stall_seconds: float = 5.0


@dataclass(slots=True)
class OpenWatch:
    """A watch over one connection."""

    _response: urllib3.BaseHTTPResponse
    stopped: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """End the watch; a blocked read returns."""
        self.stopped.set()
        with contextlib.suppress(urllib3.exceptions.HTTPError, ValueError, OSError, RuntimeError):
            self._response.shutdown()

    def events(self) -> Iterator[Json]:
        """Yield events until the server ends the watch or it is stopped.

        Raises UnavailableError where the connection breaks.
        """
        buffered = b""
        try:
            for chunk in self._response.stream(_CHUNK_BYTES, decode_content=True):
                *lines, buffered = (buffered + chunk).split(b"\n")
                if len(buffered) > _LINE_LIMIT_BYTES:
                    raise UnavailableError("watch", 0, "event too large")
                for line in lines:
                    if line.strip():
                        yield _decode("watch", line)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            if not self.stopped.is_set():
                raise UnavailableError("watch", 0, str(error)) from error
        finally:
            self._response.close()


class Client:
    """An API server and the right to talk to it. Thread-safe; one per process."""

    def __init__(
        self, configuration: Configuration, token: Token, limits: Limits | None = None
    ) -> None:
        self._limits = limits or Limits()
        configuration.retries = False
        configuration.connection_pool_maxsize = 8
        self._host = configuration.host.rstrip("/")
        self._rest = RESTClientObject(configuration)
        self._token = token

    @classmethod
    def in_cluster(cls, environment: Mapping[str, str], account: Path = _ACCOUNT) -> "Client":
        """Return a client for the cluster this Pod runs in; raises GuardError where it does not."""
        host = environment.get("KUBERNETES_SERVICE_HOST", "")
        port = environment.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise GuardError("KUBERNETES_SERVICE_HOST is not set: give --kubeconfig outside a Pod")
        configuration = Configuration()
        configuration.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        configuration.ssl_ca_cert = str(account / "ca.crt")
        return cls(configuration, FileToken(account / "token"))

    @classmethod
    def from_kubeconfig(cls, path: Path) -> "Client":
        """Return a client for the current context of a kubeconfig; raises GuardError."""
        configuration = Configuration()
        try:
            kube_config.load_kube_config(str(path), client_configuration=configuration)
        except (ConfigException, OSError, ValueError) as error:
            raise GuardError(f"{path}: {error}") from error
        except (yaml.YAMLError, TypeError, AttributeError, KeyError) as error:
            # The library takes the file for what it should be.
            line = " ".join(str(error).split())
            raise GuardError(f"{path}: not a kubeconfig: {line}") from error
        bearer: str | None = configuration.get_api_key_with_prefix("BearerToken")
        token = None if bearer is None else bearer.removeprefix("Bearer ")
        return cls(configuration, FixedToken(token=token))

    def get(self, path: str) -> Json:
        """Read one object."""
        return self._call("GET", path)

    def create(self, path: str, body: Json) -> Json:
        """Create an object in the collection ``path``."""
        return self._call("POST", path, body=body)

    def patch(
        self, path: str, body: Json, *, kind: str = MERGE_PATCH, dry_run: bool = False
    ) -> Json:
        """Patch an object and return it; a dry run is judged by admission and not stored."""
        query = {"dryRun": "All"} if dry_run else {}
        return self._call("PATCH", path, body=body, kind=kind, query=query)

    def delete(self, path: str, *, uid: str = "", resource_version: str = "") -> None:
        """Delete an object; with ``uid`` and version only this very one."""
        same = {"uid": uid, "resourceVersion": resource_version}
        self._call("DELETE", path, body={"preconditions": same} if uid else None)

    def list(self, path: str, query: Query | None = None) -> Listing:
        """Read a whole collection."""
        pages = list(self.pages(path, query))
        items = tuple(item for page in pages for item in page.items)
        return Listing(items=items, resource_version=pages[-1].resource_version)

    def pages(self, path: str, query: Query | None = None) -> Iterator[Listing]:
        """Read a collection page by page; all pages are of one version."""
        asked = {"limit": str(_PAGE_SIZE), **(query or {})}
        while True:
            page = self._call("GET", path, query=asked, read_seconds=self._limits.list_seconds)
            metadata = page.get("metadata") or {}
            yield Listing(
                items=tuple(page.get("items") or ()),
                resource_version=metadata.get("resourceVersion", ""),
            )
            if not metadata.get("continue"):
                return
            asked["continue"] = metadata["continue"]

    def watch(
        self, path: str, resource_version: str, *, seconds: int, query: Query | None = None
    ) -> OpenWatch:
        """Open a watch that the server ends after ``seconds``."""
        parameters = {
            **(query or {}),
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(seconds),
        }
        # The read limit is the longest silence: a little more than the server needs to end it.
        silence = seconds + self._limits.stall_seconds
        return OpenWatch(self._send("GET", path, query=parameters, read_seconds=silence))

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Json | None = None,
        kind: str = "application/json",
        read_seconds: float | None = None,
    ) -> Json:
        operation = f"{method} {path}"
        response = self._send(
            method, path, query=query, body=body, kind=kind, read_seconds=read_seconds
        )
        try:
            content = response.read(_BODY_LIMIT_BYTES, decode_content=True)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            response.close()
            raise UnavailableError(operation, 0, str(error)) from error
        response.release_conn()
        return _decode(operation, content)

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Json | None = None,
        kind: str = "application/json",
        read_seconds: float | None = None,
    ) -> urllib3.BaseHTTPResponse:
        def attempt() -> urllib3.BaseHTTPResponse:
            response: urllib3.BaseHTTPResponse = self._rest.request(
                method,
                f"{self._host}{path}",
                query_params=dict(query or {}),
                headers=self._headers(kind),
                body=body,
                _preload_content=False,
                _request_timeout=(
                    self._limits.connect_seconds,
                    self._limits.read_seconds if read_seconds is None else read_seconds,
                ),
            )
            return response

        operation = f"{method} {path}"
        try:
            return _mapped(operation, attempt)
        except ForbiddenError as error:
            if error.status != _UNAUTHORIZED or not self._token.refresh():
                raise
        return _mapped(operation, attempt)

    def _headers(self, kind: str) -> dict[str, str]:
        headers = {
            "Accept": "application/json",
            "Content-Type": kind,
            "User-Agent": f"npu-platform-guard/{VERSION}",
        }
        token = self._token.current()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers


class _Attempt(Protocol):
    def __call__(self) -> urllib3.BaseHTTPResponse: ...


def _mapped(operation: str, attempt: _Attempt) -> urllib3.BaseHTTPResponse:
    try:
        return attempt()
    except ApiException as error:
        raise _from_status(operation, error) from error
    except (urllib3.exceptions.HTTPError, ssl.SSLError, OSError) as error:
        raise UnavailableError(operation, 0, f"{type(error).__name__}: {error}") from error


def _from_status(operation: str, error: ApiException) -> ApiError:
    """Map a refused request; the body is a ``Status`` where the API server itself answered."""
    detail = str(error.reason)
    with contextlib.suppress(ValueError, TypeError, KeyError):
        detail = json.loads(error.body)["message"]
    retry_after = None
    with contextlib.suppress(ValueError, TypeError, KeyError):
        asked = float(error.headers["Retry-After"])
        retry_after = min(asked, _LONGEST_PAUSE_SECONDS) if asked >= 0 else None
    return api_error(operation, error.status or 0, str(detail), retry_after)


def _decode(operation: str, content: bytes) -> Json:
    try:
        data: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UnavailableError(operation, 0, f"answer is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise UnavailableError(operation, 0, "answer is not a JSON object")
    return data

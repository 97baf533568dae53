"""A small API server: what optimistic writers must get right, and what can go wrong.

It keeps resource versions, replaces lists on a merge patch, merges conditions by type on a
strategic one, refuses stale versions, streams watches, and can be told to be mute, to refuse, to
forget history, or to let another writer come between a read and a write.
"""

import contextlib
import copy
import http.server
import json
import threading
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    content_type: str
    agent: str
    body: Json | None

    @property
    def writes(self) -> bool:
        """Whether it would change something."""
        return self.method in ("POST", "PATCH", "PUT", "DELETE") and "dryRun" not in self.query


class RefusedError(Exception):
    """A request is answered by a Status with this code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class _Store:
    objects: dict[str, Json] = field(default_factory=dict)
    history: list[tuple[int, str, str, Json]] = field(default_factory=list)
    version: int = 100
    oldest: int = 0


class FakeApiServer:
    """Serves plain HTTP on a free port of 127.0.0.1 until :meth:`close`.

    ``mute`` makes every request hang until it is cleared, ``stall`` open watches. ``refuse`` is
    asked first and may raise RefusedError. ``between`` runs before a patch is applied, as another
    writer would.
    """

    def __init__(self) -> None:
        self.token = "token-1"  # noqa: S105 (of a fake)
        self.mute = threading.Event()
        self.stall = threading.Event()
        self.refuse: Callable[[Seen], None] = lambda _seen: None
        self.between: Callable[[Seen], None] = lambda _seen: None
        self.page_size: int | None = None
        self.retry_after: int | str | None = None
        self.requests: list[Seen] = []
        self._store = _Store()
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="fake apiserver", daemon=True
        ).start()

    @property
    def version(self) -> int:
        """The version of what is stored: as long as it is the same, so is everything."""
        return self._store.version

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop; open watches end."""
        self._closed.set()
        self.mute.clear()
        self.stall.clear()
        with self._changed:
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def wait_while_mute(self) -> None:
        """Hang as long as :attr:`mute` is set."""
        while self.mute.is_set() and not self._closed.wait(0.05):
            pass

    def kubeconfig(self) -> str:
        """Return a kubeconfig for this server."""
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "clusters": [{"name": "c", "cluster": {"server": self.url}}],
                "users": [{"name": "u", "user": {"token": self.token}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            }
        )

    def put(self, path: str, body: Json) -> Json:
        """Store an object as an administrator would, whatever was there."""
        with self._changed:
            return self._save(path, copy.deepcopy(body))

    def add_node(self, name: str, **spec: object) -> None:
        """Add a Ready node."""
        self.put(
            f"/api/v1/nodes/{name}",
            {
                "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"a": "b"}},
                "spec": dict(spec),
                "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "k"}]},
            },
        )

    def add_exporter(self, node: str, address: str, namespace: str = "npu") -> None:
        """Add a running exporter Pod on a node."""
        self.put(
            f"/api/v1/namespaces/{namespace}/pods/exporter-{node}",
            {
                "metadata": {"name": f"exporter-{node}", "uid": f"uid-{node}"},
                "spec": {"nodeName": node},
                "status": {"phase": "Running", "podIP": address},
            },
        )

    def add_pod(self, name: str, node: str, *, npus: int = 1, **spec: object) -> str:
        """Add a running Pod of a user; return its path."""
        path = f"/api/v1/namespaces/default/pods/{name}"
        limits = {"rockchip.com/npu": str(npus)} if npus else {"cpu": "1"}
        self.put(
            path,
            {
                "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
                "spec": {
                    "nodeName": node,
                    "containers": [{"name": "main", "resources": {"limits": limits}}],
                    **spec,
                },
                "status": {"phase": "Running"},
            },
        )
        return path

    def delete(self, path: str) -> None:
        """Delete an object."""
        with self._changed:
            gone = self._store.objects.pop(path)
            self._store.version += 1
            self._store.history.append((self._store.version, "DELETED", path, gone))
            self._changed.notify_all()

    def object(self, path: str) -> Json:
        """Return a copy of an object."""
        with self._changed:
            return copy.deepcopy(self._store.objects[path])

    def node(self, name: str) -> Json:
        """Return a copy of a Node."""
        return self.object(f"/api/v1/nodes/{name}")

    def edit_node(self, name: str, edit: Callable[[Json], None]) -> None:
        """Change a Node in place, as another writer would."""
        path = f"/api/v1/nodes/{name}"
        body = self.object(path)
        edit(body)
        self.put(path, body)

    def objects(self, collection: str) -> list[Json]:
        """Return copies of a collection's objects."""
        with self._changed:
            return [copy.deepcopy(item) for _, item in self._members(collection)]

    def forget_history(self) -> None:
        """Answer watches from any version so far with 410, open ones included."""
        with self._changed:
            self._store.oldest = self._store.version + 1
            self._store.version += 1
            self._changed.notify_all()

    def bookmark(self, collection: str) -> None:
        """Tell open watches of a collection how far they are, and forget what was before."""
        with self._changed:
            self._store.version += 1
            mark: Json = {"metadata": {"resourceVersion": str(self._store.version)}}
            entry = (self._store.version, "BOOKMARK", f"{collection}/-", mark)
            self._store.history = [entry]
            self._store.oldest = self._store.version
            self._changed.notify_all()

    def writes(self) -> list[Seen]:
        """Return the requests that would change something, Lease aside."""
        return [seen for seen in self.requests if seen.writes and "/leases" not in seen.path]

    def _save(self, path: str, body: Json) -> Json:
        kind = "MODIFIED" if path in self._store.objects else "ADDED"
        self._store.version += 1
        body.setdefault("metadata", {})["resourceVersion"] = str(self._store.version)
        self._store.objects[path] = body
        self._store.history.append((self._store.version, kind, path, copy.deepcopy(body)))
        self._changed.notify_all()
        return copy.deepcopy(body)

    def _members(self, collection: str) -> list[tuple[str, Json]]:
        return sorted(
            (path, item)
            for path, item in self._store.objects.items()
            if path.rsplit("/", 1)[0] == collection
        )

    def _get(self, seen: Seen) -> Json:
        with self._changed:
            if seen.path in self._store.objects:
                return copy.deepcopy(self._store.objects[seen.path])
            if not _is_collection(seen.path):
                raise RefusedError(404, f"{seen.path} not found")
            members = [item for _, item in self._members(seen.path)]
            if seen.path == "/api/v1/pods":
                members = self._pods_on(seen.query["fieldSelector"].removeprefix("spec.nodeName="))
            start = int(seen.query.get("continue", 0))
            size = self.page_size or len(members) or 1
            metadata: Json = {"resourceVersion": str(self._store.version)}
            if start + size < len(members):
                metadata["continue"] = str(start + size)
            return {"metadata": metadata, "items": copy.deepcopy(members[start : start + size])}

    def _pods_on(self, node: str) -> list[Json]:
        return [
            item
            for path, item in sorted(self._store.objects.items())
            if path.rsplit("/", 2)[-2] == "pods" and item["spec"].get("nodeName") == node
        ]

    def _evict(self, path: str, body: Json) -> Json:
        with self._changed:
            if path not in self._store.objects:
                raise RefusedError(404, f"{path} not found")
            asked = body["deleteOptions"]["preconditions"]["uid"]
            if self._store.objects[path]["metadata"]["uid"] != asked:
                raise RefusedError(409, "the UID in the precondition does not match")
        self.delete(path)
        return {"kind": "Status", "status": "Success"}

    def _create(self, seen: Seen) -> Json:
        body = seen.body or {}
        if seen.path.endswith("/eviction"):
            return self._evict(seen.path.removesuffix("/eviction"), body)
        path = f"{seen.path}/{body['metadata']['name']}"
        with self._changed:
            if path in self._store.objects:
                raise RefusedError(409, f"{path} already exists")
            return self._save(path, copy.deepcopy(body))

    def _patch(self, seen: Seen) -> Json:
        self.between(seen)
        path, status = seen.path.removesuffix("/status"), seen.path.endswith("/status")
        patch = copy.deepcopy(seen.body or {})
        with self._changed:
            if path not in self._store.objects:
                raise RefusedError(404, f"{path} not found")
            current = copy.deepcopy(self._store.objects[path])
            asked = patch.get("metadata", {}).pop("resourceVersion", None)
            if asked is not None and asked != current["metadata"]["resourceVersion"]:
                raise RefusedError(409, "the object has been modified")
            # A subresource changes its own part only, beside metadata.
            patch.pop("spec" if status else "status", None)
            strategic = seen.content_type == STRATEGIC
            if not strategic and seen.content_type != MERGE:
                raise RefusedError(415, f"{seen.content_type} is not supported")
            conditions = patch.get("status", {}).pop("conditions", None) if strategic else None
            result = copy.deepcopy(_merge(current, patch))
            if conditions is not None:
                held = result.setdefault("status", {}).setdefault("conditions", [])
                _merge_conditions(held, conditions)
            if "dryRun" in seen.query or result == current:
                return result
            return self._save(path, result)

    def _delete(self, seen: Seen) -> Json:
        with self._changed:
            if seen.path not in self._store.objects:
                raise RefusedError(404, f"{seen.path} not found")
        self.delete(seen.path)
        return {"kind": "Status", "status": "Success"}

    def _events(self, seen: Seen) -> Callable[[], Json | None]:
        """Return a function that waits for the next event, None at the end of the watch."""
        position = int(seen.query["resourceVersion"])

        def following() -> Json | None:
            nonlocal position
            with self._changed:
                while not self._closed.is_set():
                    if self.stall.is_set():
                        self._changed.wait(timeout=0.05)
                        continue
                    # A bookmark is not missed by who was there when it came.
                    if position < self._store.oldest and not self._bookmarked(position, seen.path):
                        return {
                            "type": "ERROR",
                            "object": {"kind": "Status", "code": 410, "message": "too old"},
                        }
                    for version, kind, path, body in self._store.history:
                        if version > position and path.rsplit("/", 1)[0] == seen.path:
                            position = version
                            return {"type": kind, "object": body}
                    if not self._changed.wait(timeout=float(seen.query["timeoutSeconds"])):
                        return None
            return None

        return following

    def _bookmarked(self, position: int, collection: str) -> bool:
        version, kind, path, _body = self._store.history[0]
        return kind == "BOOKMARK" and path == f"{collection}/-" and position == version - 1

    def _answer(self, seen: Seen, authorization: str) -> tuple[int, Json]:
        """Return status and body for anything but a watch."""
        try:
            self._admit(seen, authorization)
            answers = {
                "GET": self._get,
                "POST": self._create,
                "PATCH": self._patch,
                "DELETE": self._delete,
            }
            return 200, answers[seen.method](seen)
        except RefusedError as error:
            return _status(error)

    def _admit(self, seen: Seen, authorization: str) -> None:
        if authorization != f"Bearer {self.token}":
            raise RefusedError(401, "Unauthorized")
        self.refuse(seen)

    def _handler(self) -> type["_Handler"]:
        return type("Handler", (_Handler,), {"fake": self})


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body in one segment: two would wait for each other for 40 ms.
    wbufsize = -1
    fake: FakeApiServer

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PATCH = do_PUT = do_DELETE = do_GET  # noqa: N815 (http.server's names)

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        content = self.rfile.read(length) if length else b""
        target = urllib.parse.urlsplit(self.path)
        seen = Seen(
            method=self.command,
            path=target.path,
            query=dict(urllib.parse.parse_qsl(target.query)),
            content_type=self.headers.get("Content-Type", ""),
            agent=self.headers.get("User-Agent", ""),
            body=json.loads(content) if content else None,
        )
        self.fake.requests.append(seen)
        self.fake.wait_while_mute()
        authorization = self.headers.get("Authorization", "")
        if "watch" not in seen.query:
            self._send(*self.fake._answer(seen, authorization))
            return
        try:
            self.fake._admit(seen, authorization)
        except RefusedError as error:
            self._send(*_status(error))
        else:
            self._stream(self.fake._events(seen))

    def _send(self, code: int, body: Json) -> None:
        content = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if code == http.HTTPStatus.TOO_MANY_REQUESTS and self.fake.retry_after is not None:
            self.send_header("Retry-After", str(self.fake.retry_after))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, following: Callable[[], Json | None]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        while (event := following()) is not None:
            line = json.dumps(event).encode() + b"\n"
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            self.wfile.flush()
            if event["type"] == "ERROR":
                break
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()

    def finish(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().finish()


def _status(error: RefusedError) -> tuple[int, Json]:
    return error.code, {"kind": "Status", "code": error.code, "message": str(error)}


_COLLECTIONS = (
    *("nodes", "pods", "leases", "events"),
    *("resourceslices", "devicetaintrules", "resourceclaims"),
)


def _is_collection(path: str) -> bool:
    return path.rsplit("/", 1)[1] in _COLLECTIONS


def _merge(target: Json, patch: Json) -> Json:
    """Apply a JSON merge patch (RFC 7386): null removes, lists replace."""
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            inner = result.get(key)
            result[key] = _merge(inner if isinstance(inner, dict) else {}, value)
        else:
            result[key] = value
    return result


def _merge_conditions(held: list[Json], changes: list[Json]) -> None:
    for change in changes:
        present = next((c for c in held if c["type"] == change["type"]), None)
        if change.get("$patch") == "delete":
            if present is not None:
                held.remove(present)
        elif present is None:
            held.append(change)
        else:
            present.update(change)

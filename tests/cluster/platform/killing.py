"""Ends the guard in the middle of its writes, on a real API server.

An admission webhook hears of every write before it is stored. There the guard's process is killed
and the write refused; or the process is stopped, the write let through, and the process killed when
the write is stored and its answer not yet heard.
"""

import base64
import http.server
import json
import signal
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ci.cluster import processes
from ci.cluster.instance import registry
from ci.cluster.processes import Process
from ci.demo.story import NAMESPACE
from ci.kube import Json, WaitError, until
from tests.cluster.platform.installed import COMPONENT, Platform
from tests.cluster.platform.test_exporter_tls import issue
from thermal import record
from thermal.errors import NotFoundError
from thermal.kube import Client
from thermal.names import ANNOTATION_STATE, CONDITION, OWN_TAINTS

_NAME: Final = "npu-killer"
_POD: Final = "authentication.kubernetes.io/pod-name"
_EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """A write at which a guard ended, and whether it was stored."""

    write: str
    stored: bool


def own_taints(node: Json) -> list[Json]:
    """Return the guard's taints of a Node."""
    return [taint for taint in node["spec"].get("taints", []) if taint["key"] in OWN_TAINTS]


def other_taints(node: Json) -> str:
    """Return all other taints of a Node, whole and in their order."""
    taints = node["spec"].get("taints", [])
    others = [taint for taint in taints if taint["key"] not in OWN_TAINTS]
    # kubectl sorts the fields of an object and the API server does not.
    return json.dumps(others, sort_keys=True)


def condition(node: Json) -> Json:
    """Return the guard's condition of a Node, empty where there is none."""
    return next((one for one in node["status"]["conditions"] if one["type"] == CONDITION), {})


def described(request: Json) -> str:
    """Return what a write is, so that the same one is known again when another guard tries it."""
    item = request["object"]
    if request["resource"]["resource"] == "events":
        return f"Event {item['reason']}"
    if request.get("subResource") == "status":
        return f"condition {condition(item).get('reason')}"
    found = record.decode(item["metadata"].get("annotations", {}).get(ANNOTATION_STATE))
    effects = ",".join(taint["effect"] for taint in own_taints(item))
    return f"record {found.state if found else 'none'}, taint {effects or 'none'}"


def about(request: Json) -> str:
    """Return the name of the Node that a write is about."""
    item = request["object"]
    regarding = item.get("regarding", item["metadata"])
    return str(regarding["name"])


def process_of(pod: str) -> list[Process]:
    """Return the process of a guard by the name of its Pod. Raises LookupError."""
    mark = f"NPU_GUARD_POD_NAME={pod}".encode()
    found = [
        process
        for process in processes.running()
        if "thermal" in process.argv and mark in _environment(process)
    ]
    if not found:
        raise LookupError(f"no process of {pod}")
    return found


def _environment(process: Process) -> list[bytes]:
    try:
        return Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    except OSError:
        # It has ended since it was listed.
        return []


@dataclass(slots=True, kw_only=True)
class Killer:
    """Kills whoever writes about ``node``, at each step of a write once.

    A patch of the Node itself ends two guards: one before it is stored and one after. A patch of
    the condition ends one before; what a guard leaves that ends after it is what one leaves that
    ends at the Event. Of the Events one is lost and the next is stored.
    """

    platform: Platform
    node: str
    done: list[Killed] = field(default_factory=list)
    #: What went wrong here, with the guard none the wiser.
    problems: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(max_workers=2))

    def killed_at(self, write: str) -> bool:
        """Tell whether a guard ended at a write whose description begins so."""
        return any(one.write.startswith(write) for one in self.done)

    def allows(self, request: Json) -> bool:
        """Kill, or do not, and tell whether the write may be stored."""
        if request.get("dryRun") or about(request) != self.node:
            return True
        with self._lock:
            step = self._step(described(request))
            if step is None:
                return True
            pod = request["userInfo"]["extra"][_POD][0]
            victims = process_of(pod)
            self.done.append(step)
            processes.send(victims, signal.SIGSTOP if step.stored else signal.SIGKILL)
            self._watch(self._pool.submit(self._finish, pod, victims, request, step))
            return step.stored

    def _step(self, write: str) -> Killed | None:
        before = [one.stored for one in self.done if one.write == write]
        kind = write.partition(" ")[0]
        if kind == "record":
            return None if len(before) == 2 else Killed(write=write, stored=bool(before))
        if before:
            return None
        events = sum(one.write.startswith("Event") for one in self.done)
        return Killed(write=write, stored=kind == "Event" and events % 2 == 1)

    def _finish(self, pod: str, victims: list[Process], request: Json, step: Killed) -> None:
        """Kill a guard that was stopped, and give its place to another Pod.

        The container would be started again in the same Pod, later each time.
        """
        if step.stored:
            try:
                until(lambda: self._is_stored(request), seconds=10, what=f"{step.write} stored")
            except WaitError:
                # The kubelet was faster and the write refused: this guard will try again.
                self.done.remove(step)
                processes.send(victims, signal.SIGCONT)
                return
            processes.send(victims, signal.SIGKILL)
        self.platform.kube.kubectl(
            *("delete", "pod", pod, "-n", NAMESPACE),
            *("--force", "--grace-period=0", "--wait=false", "--ignore-not-found"),
        )

    def _is_stored(self, request: Json) -> bool:
        client = Client.from_kubeconfig(self.platform.cluster.kubeconfig)
        wanted = request["object"]
        if request["resource"]["resource"] == "events":
            try:
                client.get(f"{_EVENTS}/{wanted['metadata']['name']}")
            except NotFoundError:
                return False
            return True
        node = client.get(f"/api/v1/nodes/{self.node}")
        annotations = [item["metadata"].get("annotations", {}) for item in (node, wanted)]
        return own_taints(node) == own_taints(wanted) and annotations[0].get(
            ANNOTATION_STATE
        ) == annotations[1].get(ANNOTATION_STATE)

    def _watch(self, work: "Future[None]") -> None:
        def ended(future: "Future[None]") -> None:
            if (error := future.exception()) is not None:
                self.problems.append(repr(error))

        work.add_done_callback(ended)

    @contextmanager
    def waiting(self, folder: Path) -> Iterator[None]:
        """Wait for writes at a webhook, whose certificate is made in ``folder``."""
        instance = registry().read(self.platform.cluster.name)
        assert instance is not None
        address = str(instance.plan.host_address)
        issue(folder, _NAME, "-addext", f"subjectAltName=IP:{address}")
        with http.server.ThreadingHTTPServer((address, 0), _handler(self)) as server:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(folder / f"{_NAME}.crt", folder / f"{_NAME}.key")
            server.socket = context.wrap_socket(server.socket, server_side=True)
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                url = f"https://{address}:{server.server_port}/"
                self.platform.kube.apply(self._webhook(url, (folder / f"{_NAME}.crt").read_bytes()))
                yield
            finally:
                self.platform.kube.delete("validatingwebhookconfiguration", _NAME)
                server.shutdown()
                thread.join()
                self._pool.shutdown()

    def _webhook(self, url: str, authority: bytes) -> Json:
        (guard, *_) = self.platform.kube.items("pods", "-n", NAMESPACE, "-l", f"{COMPONENT}=guard")
        user = f"system:serviceaccount:{NAMESPACE}:{guard['spec']['serviceAccountName']}"
        rules = (
            ("", "UPDATE", ["nodes", "nodes/status"]),
            ("events.k8s.io", "CREATE", ["events"]),
        )
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": _NAME},
            "webhooks": [
                {
                    "name": "killer.example.com",
                    "clientConfig": {
                        "url": url,
                        "caBundle": base64.b64encode(authority).decode(),
                    },
                    "rules": [
                        {
                            "apiGroups": [group],
                            "apiVersions": ["v1"],
                            "operations": [operation],
                            "resources": resources,
                        }
                        for group, operation, resources in rules
                    ],
                    "matchConditions": [
                        {"name": "guard", "expression": f"request.userInfo.username == '{user}'"}
                    ],
                    # What fails here must not look like a guard that writes nothing.
                    "failurePolicy": "Ignore",
                    "sideEffects": "NoneOnDryRun",
                    "timeoutSeconds": 10,
                    "admissionReviewVersions": ["v1"],
                }
            ],
        }


def _handler(killer: Killer) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                allowed = killer.allows(review["request"])
            except (LookupError, OSError) as error:
                killer.problems.append(repr(error))
                allowed = True
            answer = {"uid": review["request"]["uid"], "allowed": allowed}
            body = json.dumps(review | {"request": None, "response": answer}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler

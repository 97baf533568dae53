"""A fleet in a real API server, as plain objects: Nodes with their Pods, and who follows them."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from tests.bench.guard_farm import address_of, name_of
from thermal.api import NODES
from thermal.dra.rules import RULES
from thermal.dra.slices import SLICES
from thermal.errors import ApiError
from thermal.kube import Client
from thermal.names import TAINT_HOT

NAMESPACE: Final = "npu"
#: Writes are counted over windows: the pace allows a burst of one second.
_WINDOW_SECONDS = 10


class Fleet:
    """Nodes and their Pods in the API server, by number.

    With ``claims`` a node has a plugin that serves ResourceClaims, and no extended resource.
    """

    def __init__(self, client: Client, size: int, *, claims: bool = False) -> None:
        self._client = client
        self.size = size
        self.claims = claims

    def create(self) -> None:
        """Create everything; each Node is about as large as a kubelet's."""
        space = {"metadata": {"name": NAMESPACE}}
        self._client.create("/api/v1/namespaces", space)
        accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
        self._client.create(accounts, {"metadata": {"name": "default"}})
        with ThreadPoolExecutor(max_workers=8) as pool:
            for _ in pool.map(self._create_one, range(self.size)):
                pass

    def _create_one(self, number: int) -> None:
        name = name_of(number)
        images = [
            {"names": [f"registry.example/team/image{index}@sha256:{index:064x}"], "sizeBytes": 1}
            for index in range(40)
        ]
        resources = {"cpu": "8", "memory": "16Gi"}
        if not self.claims:
            resources["rockchip.com/npu"] = "1"
        self._client.create(
            NODES,
            {
                "metadata": {
                    "name": name,
                    "labels": {
                        "kubernetes.io/hostname": name,
                        "kubernetes.io/arch": "arm64",
                        "topology.kubernetes.io/zone": f"rack{number % 50}",
                    },
                },
                "status": {
                    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                    "allocatable": resources,
                    "capacity": resources,
                    "images": images,
                },
            },
        )
        self._create_pod("exporter", number, {"app.kubernetes.io/component": "exporter"})
        if self.claims:
            labels = {"app.kubernetes.io/component": "plugin", "npu-platform.io/mode": "dra"}
            self._create_pod("plugin", number, labels)

    def _create_pod(self, kind: str, number: int, labels: dict[str, str]) -> None:
        node = name_of(number)
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        pod = f"{kind}-{node}"
        self._client.create(
            pods,
            {
                "metadata": {"name": pod, "labels": labels},
                "spec": {
                    "nodeName": node,
                    "automountServiceAccountToken": False,
                    "containers": [{"name": kind, "image": kind}],
                },
            },
        )
        address = address_of(number)
        self._client.patch(
            f"{pods}/{pod}/status",
            {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}},
        )


class Observer:
    """Follows what the guard writes: when each node was closed, and how many writes there were.

    A node is closed by our taint on it or, with ``claims``, by a DeviceTaintRule for it.
    """

    def __init__(self, client: Client, *, claims: bool = False) -> None:
        self._client = client
        self.closed_at: dict[str, float] = {}
        self.published: set[str] = set()
        self._writes: dict[str, Counter[int]] = {}
        self._follow(NODES, self._node)
        if claims:
            self._follow(RULES, self._rule)
            self._follow(SLICES, self._slice)

    def writes_per_second(self, begin: float, end: float) -> float:
        """Return the highest mean over any window between two moments.

        That is of one kind of object: each has a pace of its own.
        """
        moments = range(int(begin), max(int(begin) + 1, int(end) - _WINDOW_SECONDS))
        return max(
            sum(writes[moment + offset] for offset in range(_WINDOW_SECONDS)) / _WINDOW_SECONDS
            for moment in moments
            for writes in self._writes.values()
        )

    def _follow(self, path: str, take: Callable[[dict[str, Any], float], None]) -> None:
        version = self._client.list(path).resource_version
        writes = self._writes.setdefault(path, Counter())

        def follow() -> None:
            for event in self._events(path, version):
                now = time.monotonic()
                if event["type"] == "BOOKMARK":
                    continue
                writes[int(now)] += 1
                if event["type"] != "DELETED":
                    take(event["object"], now)

        threading.Thread(target=follow, name=f"observer of {path}", daemon=True).start()

    def _events(self, path: str, version: str) -> Iterator[dict[str, Any]]:
        while True:
            try:
                for event in self._client.watch(path, version, seconds=300).events():
                    version = event["object"]["metadata"]["resourceVersion"]
                    yield event
            except ApiError as error:
                print(f"observer: {error}", file=sys.stderr)  # noqa: T201
                time.sleep(1)

    def _node(self, node: dict[str, Any], now: float) -> None:
        if any(taint["key"] == TAINT_HOT for taint in node["spec"].get("taints", ())):
            self.closed_at.setdefault(node["metadata"]["name"], now)

    def _rule(self, rule: dict[str, Any], now: float) -> None:
        self.closed_at.setdefault(rule["spec"]["deviceSelector"]["pool"], now)

    def _slice(self, item: dict[str, Any], _now: float) -> None:
        self.published.add(item["spec"]["nodeName"])

"""Objects of a small cluster for tests: nodes with boards and Pods that want them."""

import json
from pathlib import Path
from typing import Any, Final

from kubectl_npu.client import KubectlError, RefusedError

Json = dict[str, Any]
RESOURCE: Final = "rockchip.com/npu"
RECORDED: Final = Path(__file__).parent / "recorded"
HOT: Final = {"key": "thermal.npu-platform.io/hot", "value": "80", "effect": "NoSchedule"}


def recorded(name: str) -> Json:
    """Return what a cluster once answered."""
    data: Json = json.loads((RECORDED / name).read_text())
    return data


def node(name: str = "n1", *, offers: int = 1, capacity: int | None = None, **spec: object) -> Json:
    """Return a ready node."""
    most = offers if capacity is None else capacity
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": spec,
        "status": {
            "capacity": {RESOURCE: str(most)} if most else {},
            "allocatable": {RESOURCE: str(offers)} if most else {},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, *, on: str | None = None, asks: int = 1, **spec: object) -> Json:
    """Return a Pod, running where it is bound and waiting where it is not."""
    limits = {RESOURCE: str(asks)} if asks else {}
    return {
        "metadata": {"name": name, "namespace": "team", "uid": name, "labels": {}},
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": limits}}],
            **({"nodeName": on} if on else {}),
            **spec,
        },
        "status": {"phase": "Running" if on else "Pending"},
    }


def of_deployment(item: Json, deployment: str, generation: str) -> Json:
    """Return a Pod as a Deployment makes it."""
    owner = {"kind": "ReplicaSet", "name": f"{deployment}-{generation}", "controller": True}
    item["metadata"]["ownerReferences"] = [owner]
    item["metadata"]["labels"] = {"pod-template-hash": generation}
    return item


class Cluster:
    """kubectl of a recorded cluster; ``forbidden`` are beginnings of what it refuses."""

    def __init__(self, *forbidden: str) -> None:
        self.forbidden = forbidden
        self.extra: list[Json] = []
        self.events: list[Json] = []
        self.quotas: list[Json] = []
        self.lists: dict[str, list[Json]] = {}
        self._looks = 0

    def run(self, *arguments: str) -> str:
        """Answer as kubectl would."""
        asked = " ".join(arguments)
        if asked.startswith(self.forbidden or ("-",)):
            raise RefusedError(f"you may not {asked}")
        if arguments[:2] == ("get", "--raw"):
            return self._page(arguments[2])
        if asked.startswith("config view"):
            return "team"
        lists = {
            "nodes": recorded("nodes.json")["items"],
            "pods": [*recorded("pods.json")["items"], *self.extra],
            "resourcequotas": self.quotas,
            "events": self.events,
            "daemonsets": [],
            **self.lists,
        }
        if arguments[0] == "get":
            return json.dumps({"items": lists[arguments[1]]})
        raise KubectlError(f"kubectl {asked}: not recorded")

    def _page(self, path: str) -> str:
        if "exporter-px5vm" in path:
            return ""
        if "exporter-wdh8t" in path:
            self._looks += 1
            text = (RECORDED / "metrics-node1.txt").read_text()
            if self._looks > 1:
                # Two seconds later: core 0 was busy all the time, the others half of it.
                text = text.replace(
                    'core="0",device="npu0"} 56.61', 'core="0",device="npu0"} 58.61'
                )
                text = text.replace('device="npu0"} 56.61', 'device="npu0"} 57.61')
                text = text.replace('device="npu0"} 160.73', 'device="npu0"} 162.73')
            return text + (
                'npu_device_allocation_info{container="c",device="npu0",namespace="team",'
                f'pod="holder",resource="{RESOURCE}"}} 1.0\n'
            )
        if "exporter-dwwlf" in path:
            raise KubectlError("kubectl get --raw: the server is currently unable to handle it")
        if "/api/v1/nodes" in path:
            return (RECORDED / "guard-nodes.json").read_text()
        if "/api/v1/decisions" in path:
            return (RECORDED / "guard-decisions.json").read_text()
        return (RECORDED / "allocations.json").read_text()

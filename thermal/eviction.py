"""Which Pods should leave a hot node, when, and whether they have somewhere to go. Pure.

Only Pods that hold an NPU are meant: the others do not heat it. They are evicted by the Eviction
API, so that disruption budgets are respected and they end in their own time.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from npu.heat import Heat
from thermal.actions import Evict
from thermal.budget import is_emergency
from thermal.names import TAINT_HOT
from thermal.objects import Json, NodeRecord
from thermal.policy import Decision

_MIRROR = "kubernetes.io/config.mirror"
_CLOSING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


class Eviction(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """In which states NPU Pods are evicted, and how fast; an emergency is not paced.

    At most one further node per ``interval_seconds``, and ``concurrent_nodes`` at a time.
    ``no_execute`` adds the taint that deletes Pods of any kind: to nodes that are still critical
    after ``no_execute_after_seconds``, and in an emergency at once. ``enabled`` False switches all
    of it off.
    """

    enabled: bool = True
    states: tuple[Literal["critical", "emergency"], ...] = ("emergency",)
    interval_seconds: float = 30.0
    concurrent_nodes: int = 2
    no_execute: bool = False
    no_execute_after_seconds: float = 120.0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not 0 < self.interval_seconds < math.inf:
            raise ValueError("intervalSeconds must be a positive number of seconds")
        if self.concurrent_nodes < 1:
            raise ValueError("concurrentNodes must be at least 1")
        if not 0 <= self.no_execute_after_seconds < math.inf:
            raise ValueError("noExecuteAfterSeconds must be a number of seconds")

    @property
    def heats(self) -> frozenset[Heat]:
        """The states, none where eviction is off."""
        return frozenset(Heat(state) for state in self.states) if self.enabled else frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class NpuPod:
    """A Pod that holds NPUs, by resource.

    ``returns`` is True where it tolerates our taint: a new one of its kind may be back at once.
    """

    namespace: str
    name: str
    uid: str
    requests: Mapping[str, int]
    ending: bool = False
    returns: bool = False


#: Tells how many devices of each resource a Pod has by claims that it brought.
Claimed = Callable[[Json], Mapping[str, int]]


def no_claims(_pod: Json) -> Mapping[str, int]:
    """Tell that a Pod has nothing by claims, as where no node serves any."""
    return {}


def npu_pods(
    pods: Iterable[Json], resources: Collection[str], claimed: Claimed = no_claims
) -> list[NpuPod]:
    """Return the Pods that hold one of ``resources``; finished and mirror Pods hold none."""
    found = []
    for pod in pods:
        metadata, spec = _object(pod, "metadata"), _object(pod, "spec")
        finished = _object(pod, "status").get("phase") in ("Succeeded", "Failed")
        if finished or _MIRROR in _object(metadata, "annotations"):
            continue
        requests = dict(Counter(_requests(spec, resources)) + Counter(claimed(pod)))
        if not requests:
            continue
        found.append(
            NpuPod(
                namespace=str(metadata.get("namespace", "")),
                name=str(metadata.get("name", "")),
                uid=str(metadata.get("uid", "")),
                requests=requests,
                ending="deletionTimestamp" in metadata,
                returns=any(_tolerates(item) for item in spec.get("tolerations") or ()),
            )
        )
    return found


def evictable(pods: Iterable[NpuPod], *, emergency: bool) -> list[NpuPod]:
    """Return the Pods to evict now; those that would be back at once only in an emergency."""
    return [pod for pod in pods if not pod.ending and (emergency or not pod.returns)]


def wants_eviction(decision: Decision) -> bool:
    """Tell whether a node's Pods should leave: its state asks for it and it takes no new ones.

    A node that is still open would only get them back; one with a cool card of many is open.
    """
    stop = decision.stop
    if not any(isinstance(action, Evict) for action in decision.actions):
        return False
    return stop is not None and (not stop.soft or is_emergency(decision))


def destinations(
    nodes: Mapping[str, NodeRecord],
    decisions: Mapping[str, Decision],
    resource: str,
    *,
    besides: str,
) -> list[str]:
    """Return nodes that may take a Pod with this resource, the coolest first.

    Only cool ones without a closing taint of anybody; whether a device is free there is not known
    here.
    """
    fit: list[tuple[float, str]] = []
    for name, decision in decisions.items():
        node = nodes.get(name)
        if name == besides or node is None or decision.state is not Heat.COOL or not node.ready:
            continue
        closed = any(taint.get("effect") in _CLOSING_EFFECTS for taint in node.taints)
        if not closed and node.allocatable.get(resource, 0) > 0:
            known = [device.celsius for device in decision.devices if device.celsius is not None]
            fit.append((max(known, default=math.inf), name))
    return [name for _, name in sorted(fit)]


def free(node: NodeRecord, pods: Sequence[NpuPod], resource: str) -> int:
    """Return how many devices of a resource nobody on the node holds."""
    held = sum(pod.requests.get(resource, 0) for pod in pods)
    return max(0, node.allocatable.get(resource, 0) - held)


@dataclass(slots=True, kw_only=True)
class Pace:
    """Which nodes are being emptied, and when the next may follow. Times are monotonic."""

    eviction: Eviction
    active: dict[str, float] = field(default_factory=dict)
    started_at: float = -math.inf

    def admits(self, node: str, now: float, *, emergency: bool) -> bool:
        """Tell whether a node may be emptied now."""
        if node in self.active or emergency:
            return True
        return (
            len(self.active) < self.eviction.concurrent_nodes
            and now - self.started_at >= self.eviction.interval_seconds
        )

    def start(self, node: str, now: float) -> None:
        """Note that a node is being emptied."""
        if node not in self.active:
            self.active[node] = self.started_at = now

    def keep(self, nodes: Collection[str]) -> None:
        """Forget nodes that need not be emptied any more."""
        for node in self.active.keys() - set(nodes):
            del self.active[node]


def _requests(spec: Json, resources: Collection[str]) -> dict[str, int]:
    """Sum the containers' requests: extended resources have equal requests and limits."""
    total: dict[str, int] = {}
    peak: dict[str, int] = {}
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or ():
            wanted = _object(_object(container, "resources"), "limits")
            for name in resources:
                text = str(wanted.get(name, "0"))
                count = int(text) if text.isascii() and text.isdigit() else 0
                if not count:
                    continue
                if kind == "initContainers" and container.get("restartPolicy") != "Always":
                    peak[name] = max(count, peak.get(name, 0))
                else:
                    total[name] = total.get(name, 0) + count
    return {name: max(total.get(name, 0), peak.get(name, 0)) for name in total.keys() | peak.keys()}


def _tolerates(toleration: Mapping[str, str]) -> bool:
    exists = toleration.get("operator") == "Exists"
    key, effect = toleration.get("key"), toleration.get("effect")
    return exists and (not key or key == TAINT_HOT) and (not effect or effect == "NoSchedule")


def _object(parent: Json, key: str) -> Json:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}

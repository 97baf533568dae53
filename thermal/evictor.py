"""The evicting loop: takes NPU Pods off nodes that get hotter although they get no new work.

Pods are not watched: a cluster has many, evictions are rare, and a list of one node's Pods just
before the eviction is fresher than any cache. A refusal by a disruption budget (429) is no error:
the Pod is asked again when the server says so, as long as the heat lasts.
"""

import logging
import time
from collections.abc import Callable, Mapping

from daemon.logs import fields
from thermal import taints
from thermal.api import Api
from thermal.budget import is_emergency
from thermal.config import Config
from thermal.errors import ApiError, ConflictError, NotFoundError, UnavailableError
from thermal.events import about_pod, eviction_announcement
from thermal.eviction import (
    Claimed,
    NpuPod,
    Pace,
    destinations,
    evictable,
    free,
    no_claims,
    npu_pods,
    wants_eviction,
)
from thermal.judging import Cluster, Judgement, Leadership
from thermal.metrics import EvictionOutcome, Metrics
from thermal.objects import NodeRecord
from thermal.observing import of_observed_vendors
from thermal.policy import Decision
from thermal.writer import NodeActuator

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 5.0
_RETRY_SECONDS = 10.0
_NO_DESTINATION_SECONDS = 30.0
_CANDIDATES = 8
_TOO_MANY_REQUESTS = 429
#: A blocked Pod is announced once per this time.
_REMIND_SECONDS = 600.0


class Evictor:
    """Evicts while this replica leads; :meth:`step` is one turn of its loop."""

    def __init__(
        self,
        config: Config,
        api: Api,
        *,
        cluster: Cluster,
        judgement: Callable[[], Judgement | None],
        leadership: Leadership,
        actuator: NodeActuator,
        metrics: Metrics,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._api = api
        self._cluster = cluster
        self._judgement = judgement
        self._leadership = leadership
        self._actuator = actuator
        self._metrics = metrics
        #: Tells what a Pod has by claims that it brought.
        self.claimed: Claimed = no_claims
        self._monotonic = monotonic
        self._forget(None)

    def _forget(self, term: int | None) -> None:
        self._term = term
        self._pace = Pace(eviction=self._config.eviction)
        self._due: dict[str, float] = {}
        self._told: dict[str, float] = {}

    def step(self) -> None:
        """Evict from the nodes that are due, the hottest first."""
        judgement = self._judgement()
        if judgement is None or judgement.term != self._leadership.term:
            self._forget(None)
            return
        if self._term != judgement.term:
            self._forget(judgement.term)
        nodes = self._cluster.nodes()
        decisions = {
            name: status.decision
            for name, status in judgement.statuses.items()
            if status.decision is not None
        }
        wanted = {
            name: decision
            for name, decision in decisions.items()
            if wants_eviction(decision) and self._may_touch(nodes.get(name), judgement, name)
        }
        self._pace.keep(wanted)
        self._due = {name: at for name, at in self._due.items() if name in wanted}
        for name in sorted(wanted, key=lambda node: _hottest(wanted[node]), reverse=True):
            now = self._monotonic()
            emergency = is_emergency(wanted[name])
            if now < self._due.get(name, now):
                continue
            if not self._pace.admits(name, now, emergency=emergency):
                continue
            try:
                self._empty(name, nodes, decisions, emergency=emergency)
            except ApiError as error:
                self._metrics.api_error(error)
                self._due[name] = now + _RETRY_SECONDS
                log.warning("pods cannot be listed", extra=fields(node=name, error=error))

    def _may_touch(self, node: NodeRecord | None, judgement: Judgement, name: str) -> bool:
        """Tell whether the node is ours to act on and, where wanted, carries the taint already.

        Without the taint the next Pod would come right after the one that left.
        """
        if node is None or node.override is not None or self._config.mode == "observe":
            return False
        if of_observed_vendors(self._config, judgement.statuses[name]):
            return False
        if self._config.effect is None or taints.applied_effect(node.taints) is not None:
            return True
        # Devices can be closed and not merely avoided: there is no mark to wait for.
        return self._config.effect != "NoSchedule" and name in self._cluster.claims()

    def _empty(
        self,
        name: str,
        nodes: Mapping[str, NodeRecord],
        decisions: Mapping[str, Decision],
        *,
        emergency: bool,
    ) -> None:
        """Ask every NPU Pod on the node to leave."""
        now = self._monotonic()
        pods = evictable(self._pods_on(name), emergency=emergency)
        self._due[name] = now + _AGAIN_SECONDS
        if not pods:
            return
        if not emergency and not self._have_somewhere_to_go(name, pods, nodes, decisions):
            self._due[name] = now + _NO_DESTINATION_SECONDS
            return
        self._pace.start(name, now)
        for pod in pods:
            self._evict(name, pod)

    def _have_somewhere_to_go(
        self,
        name: str,
        pods: list[NpuPod],
        nodes: Mapping[str, NodeRecord],
        decisions: Mapping[str, Decision],
    ) -> bool:
        for resource in sorted({resource for pod in pods for resource in pod.requests}):
            candidates = destinations(nodes, decisions, resource, besides=name)
            if not any(
                free(nodes[candidate], self._pods_on(candidate), resource) > 0
                for candidate in candidates[:_CANDIDATES]
            ):
                self._metrics.evicted("no_destination")
                if self._news(name):
                    self._actuator.journal.note(
                        "eviction",
                        name,
                        f"no cool node has a free {resource}",
                        reason="no_destination",
                    )
                    log.warning(
                        "eviction held back: no cool node has a free device",
                        extra=fields(node=name, resource=resource, reason="no_destination"),
                    )
                return False
        return True

    def _evict(self, node: str, pod: NpuPod) -> None:
        if self._leadership.term is None:
            return
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            # The Pod that was seen, not one of the same name that came later.
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        outcome: EvictionOutcome = "evicted"
        problem: ApiError | None = None
        try:
            self._api.create(path, body)
        except (NotFoundError, ConflictError):
            outcome = "gone"
        except UnavailableError as error:
            outcome = "blocked" if error.status == _TOO_MANY_REQUESTS else "failed"
            problem = error
            self._wait(node, max(_RETRY_SECONDS, error.retry_after_seconds or 0.0))
        except ApiError as error:
            outcome, problem = "failed", error
            self._wait(node, _RETRY_SECONDS)
        if problem is not None and outcome == "failed":
            self._metrics.api_error(problem)
        self._metrics.evicted(outcome)
        if outcome == "evicted" or (outcome != "gone" and self._news(pod.uid)):
            self._actuator.journal.note(
                "eviction", node, f"Pod {pod.namespace}/{pod.name}", reason=outcome
            )
            log.warning(
                "pod evicted" if outcome == "evicted" else "pod not evicted",
                extra=fields(
                    node=node, namespace=pod.namespace, pod=pod.name, reason=outcome, error=problem
                ),
            )
            if outcome != "failed":
                self._actuator.announce(
                    eviction_announcement(node, blocked=outcome == "blocked"), about_pod(pod)
                )

    def _wait(self, node: str, seconds: float) -> None:
        self._due[node] = max(self._due.get(node, 0.0), self._monotonic() + seconds)

    def _news(self, what: str) -> bool:
        """Tell whether something was not told for a while, and note that it is now."""
        now = self._monotonic()
        if now - self._told.get(what, float("-inf")) < _REMIND_SECONDS:
            return False
        self._told[what] = now
        return True

    def _pods_on(self, node: str) -> list[NpuPod]:
        listing = self._api.list("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"})
        return npu_pods(listing.items, self._config.resources, self.claimed)


def _hottest(decision: Decision) -> tuple[bool, float]:
    known = [device.celsius for device in decision.devices if device.celsius is not None]
    return is_emergency(decision), max(known, default=0.0)

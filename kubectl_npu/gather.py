"""Reads a cluster as far as the caller's rights go; what is refused is said and left out."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from kubectl_npu import claims
from kubectl_npu.client import Client, Json, KubectlError, RefusedError, pod_page
from kubectl_npu.exposition import Sample, samples
from kubectl_npu.picture import Picture, is_ready, known_resources
from kubectl_npu.top import METRICS

#: How many kubectl run at a time.
_PARALLEL = 8
_NAME = "app.kubernetes.io/name"
_COMPONENT = "app.kubernetes.io/component"
_PRODUCT = "npu-platform"
_HOLDER = "npu_device_allocation_info"


@dataclass(slots=True, kw_only=True)
class Reader:
    """Asks by ``client``; ``missing`` collects what could not be read, each line once.

    ``platform_namespace`` is where the release is looked for when Pods of all namespaces may not be
    listed.
    """

    client: Client
    platform_namespace: str = _PRODUCT
    missing: list[str] = field(default_factory=list)

    def items(self, *what: str) -> list[Json]:
        """Return the items of a list, none where it is refused; raises KubectlError."""
        try:
            found: list[Json] = json.loads(self.client.run("get", *what, "-o", "json"))["items"]
        except RefusedError as error:
            self.miss(str(error))
            return []
        except (ValueError, KeyError) as error:
            raise KubectlError(f"kubectl get {what[0]}: answered no list") from error
        return found or []

    def miss(self, line: str) -> None:
        """Note something that could not be read."""
        if line not in self.missing:
            self.missing.append(line)

    def objects(self, namespace: str | None = None, resources: Sequence[str] = ()) -> Picture:
        """Return Nodes and Pods; of one namespace and the platform's where all are refused."""
        nodes = self.items("nodes")
        before = len(self.missing)
        pods = self.items("pods", "-A")
        if len(self.missing) > before:
            own = ("-n", namespace) if namespace else ()
            pods = self.items("pods", *own)
            pods += self.items("pods", "-n", self.platform_namespace, "-l", f"{_NAME}={_PRODUCT}")
            pods = list({pod["metadata"]["uid"]: pod for pod in pods}.values())
        before = len(self.missing)
        seen_nodes, seen_pods = self.with_claims(nodes, pods, namespace)
        return Picture(
            nodes=seen_nodes,
            pods=seen_pods,
            resources=frozenset(resources) or known_resources(seen_nodes, seen_pods),
            offers_unknown=len(self.missing) > before,
        )

    def with_claims(
        self, nodes: Sequence[Json], pods: Sequence[Json], namespace: str | None = None
    ) -> tuple[Sequence[Json], Sequence[Json]]:
        """Return Nodes and Pods with what claims hand out, where a plugin does that."""
        if not claims.in_use(pods):
            return nodes, pods
        where = ("-n", namespace) if namespace else ("-A",)
        try:
            slices = self.items("resourceslices", "-l", claims.PUBLISHED)
            rules = self.items("devicetaintrules", "-l", claims.PUBLISHED)
            given = self.items("resourceclaims", *where)
        except KubectlError as error:
            self.miss(f"what claims hand out: {error}")
            return nodes, pods
        return claims.nodes_with(nodes, slices, rules), claims.pods_with(pods, given, slices)

    def with_metrics(
        self,
        picture: Picture,
        names: Sequence[str] = METRICS,
        *,
        interval_seconds: float = 0,
        only: Iterable[str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Picture:
        """Add what the exporters say, twice with a pause where loads are wanted."""
        pods = _by_node(picture, "exporter", only)
        path = "/metrics?" + "&".join(f"name[]={name}" for name in names)
        before: Mapping[str, Sequence[Sample]] = {}
        if interval_seconds > 0:
            before = {node: list(samples(text)) for node, text in self._pages(pods, path).items()}
            sleep(interval_seconds)
        now = {node: list(samples(text)) for node, text in self._pages(pods, path).items()}
        return replace(picture, metrics=now, before=before)

    def with_holders(self, picture: Picture) -> Picture:
        """Add who holds which device."""
        return self.with_metrics(picture, (_HOLDER,))

    def with_guard(self, picture: Picture, *, decisions_of: str | None = None) -> Picture:
        """Add what the guard's leader thinks of each node, and its last decisions on one."""
        for pod in _pods(picture, "guard"):
            try:
                page = json.loads(pod_page(self.client, pod, "/api/v1/nodes"))
                told: Json = {"decisions": []}
                if decisions_of is not None:
                    path = f"/api/v1/decisions?limit=3&node={decisions_of}"
                    told = json.loads(pod_page(self.client, pod, path))
            except RefusedError as error:
                self.miss(str(error))
                break
            except (KubectlError, ValueError):
                # A standby answers 503; the leader is another one.
                continue
            guard = {node["node"]: node for node in page.get("nodes", ())}
            return replace(picture, guard=guard, decisions=told.get("decisions", ()))
        return picture

    def with_allocations(self, picture: Picture, node: str) -> Picture:
        """Add the device plugin's page of one node."""
        found: dict[str, Json] = {}
        pages = self._pages(_by_node(picture, "plugin", [node]), "/allocations")
        for name, page in pages.items():
            try:
                found[name] = json.loads(page)
            except ValueError:
                self.miss(f"{name}: the device plugin's page /allocations is not JSON")
        return replace(picture, allocations=found)

    def with_shares(self, picture: Picture, namespace: str | None = None) -> Picture:
        """Add the quotas, of one namespace if given."""
        where = ("-n", namespace) if namespace else ("-A",)
        return replace(picture, quotas=self.items("resourcequotas", *where))

    def with_refusals(self, picture: Picture, namespace: str) -> Picture:
        """Add the Events that say why a controller could not make a Pod."""
        events = self.items("events", "-n", namespace, "--field-selector=reason=FailedCreate")
        return replace(picture, events=events)

    def _pages(self, pods: Mapping[str, Json], path: str) -> dict[str, str]:
        """Return a page of a Pod per node; what does not answer is absent and said."""

        def ask(pod: Json) -> str | KubectlError:
            try:
                return pod_page(self.client, pod, path)
            except KubectlError as error:
                return error

        with ThreadPoolExecutor(_PARALLEL) as pool:
            answers = dict(zip(pods, pool.map(ask, pods.values()), strict=True))
        for node, answer in answers.items():
            if isinstance(answer, RefusedError):
                self.miss(str(answer))
            elif isinstance(answer, KubectlError):
                self.miss(f"{node} does not answer: {answer}")
        return {node: answer for node, answer in answers.items() if isinstance(answer, str)}


def _pods(picture: Picture, component: str) -> list[Json]:
    found = []
    for pod in picture.pods:
        labels = pod["metadata"].get("labels", {})
        if labels.get(_NAME) == _PRODUCT and labels.get(_COMPONENT) == component and is_ready(pod):
            found.append(pod)
    return found


def _by_node(picture: Picture, component: str, only: Iterable[str] | None) -> dict[str, Json]:
    wanted = None if only is None else set(only)
    return {
        node: pod
        for pod in _pods(picture, component)
        if (node := pod["spec"].get("nodeName")) and (wanted is None or node in wanted)
    }

"""``kubectl npu why POD``: why a Pod has no NPU, with what to do. Pure."""

from collections.abc import Iterator, Sequence

from kubectl_npu.claims import claim_names
from kubectl_npu.client import Json
from kubectl_npu.finding import Finding, fail, ok, warn
from kubectl_npu.picture import (
    ENDED,
    OWN_TAINTS,
    Picture,
    counts,
    enough,
    free,
    full_name,
    holders,
    holds,
    listed,
    name_of,
    requests,
)
from kubectl_npu.placement import closing_taints, selected, taint_text

GHOST = "UnexpectedAdmissionError"
_NAMES = 4


def explain(pod: Json, picture: Picture) -> Iterator[Finding]:
    """Yield why a Pod is as it is; the first finding is the one to act on."""
    asked = requests(pod, picture.resources)
    status = pod.get("status", {})
    if not asked and (names := claim_names(pod)):
        yield warn(
            "claim",
            f"{full_name(pod)} brought the claims {', '.join(names)} and was given no NPU of ours; "
            f"the scheduler says: {verdict(pod)}",
            "`kubectl describe resourceclaim` names the devices it wants, `kubectl get "
            "resourceslices -o yaml` their attributes",
        )
        return
    if not asked:
        yield warn(
            "request",
            f"{full_name(pod)} asks for no NPU: no container has one in resources.limits",
            "add `resources: {limits: {rockchip.com/npu: 1}}`; requests alone are refused",
        )
        return
    if status.get("phase") in ENDED:
        yield _ended(pod, asked)
    elif pod["spec"].get("nodeName"):
        yield from _placed(pod, asked, picture)
    elif pod["spec"].get("schedulingGates"):
        gates = ", ".join(gate["name"] for gate in pod["spec"]["schedulingGates"])
        yield warn(
            "gate",
            f"{full_name(pod)} is held by a scheduling gate: {gates}",
            "whoever set the gate lets it go: for Kueue see `kubectl get workloads`",
        )
    else:
        yield from _waiting(pod, asked, picture)


def refused(name: str, namespace: str, picture: Picture) -> Iterator[Finding]:
    """Yield why the Pods of a workload do not even exist: what each controller was told last."""
    latest: dict[str, Json] = {}
    for event in sorted(picture.events, key=lambda event: event.get("lastTimestamp") or ""):
        involved = event.get("involvedObject", {}).get("name", "")
        mine = involved == name or involved.startswith(f"{name}-")
        if mine and event.get("reason") == "FailedCreate":
            latest[involved] = event
    for owner, event in latest.items():
        message = event.get("message", "")
        if "exceeded quota" in message:
            remedy = "end a Pod of the team or ask for a larger share: `kubectl describe quota`"
        elif "no NPU quota" in message:
            remedy = "the namespace needs a share: ask whom the message names"
        elif "maximum" in message and "per Container" in message:
            remedy = "one container may have so many at most: `kubectl describe limitrange`"
        else:
            remedy = "the API server's own words"
        kind = event["involvedObject"].get("kind", "object").lower()
        yield fail("quota", f"{kind} {namespace}/{owner}: {message}", remedy)


def _ended(pod: Json, asked: dict[str, int]) -> Finding:
    status = pod["status"]
    if status.get("reason") == GHOST:
        return fail(
            "ghost",
            f"{full_name(pod)} was turned away by its node: {status.get('message', GHOST)}",
            "it holds nothing and never starts: after a reboot the kubelet admits Pods before "
            "the plugin is back. A controller makes another; delete it",
        )
    return ok(
        "ended", f"{full_name(pod)} has ended ({status['phase']}) and gave back {listed(asked)}"
    )


def _placed(pod: Json, asked: dict[str, int], picture: Picture) -> Iterator[Finding]:
    node, status = pod["spec"]["nodeName"], pod.get("status", {})
    devices = [d for d, pods in holders(picture, node).items() if full_name(pod) in pods]
    has = f" ({', '.join(devices)})" if devices else ""
    text = f"{full_name(pod)} has {listed(asked)}{has} on {node}"
    states = status.get("containerStatuses", [])
    waiting = [s["state"]["waiting"] for s in states if s.get("state", {}).get("waiting")]
    if status.get("phase") == "Running" and not waiting:
        yield ok("running", text)
    for state in waiting:
        yield warn(
            "container",
            f"{text} and its container waits: {state.get('reason')} {state.get('message', '')}",
            "the NPU is reserved; see `kubectl describe pod` and `kubectl logs --previous`",
        )
    if status.get("phase") != "Running" and not waiting:
        yield warn("container", f"{text} and is not running yet", "see `kubectl describe pod`")


def _waiting(pod: Json, asked: dict[str, int], picture: Picture) -> Iterator[Finding]:
    text = f"{full_name(pod)} waits for {listed(asked)}"
    resources = picture.resources
    if not picture.nodes:
        yield warn(
            "scheduler", f"{text}; the scheduler says: {verdict(pod)}", "nodes were not read"
        )
        return
    if picture.offers_unknown:
        yield warn(
            "scheduler",
            f"{text}; the scheduler says: {verdict(pod)}",
            "what nodes offer to claims was not read",
        )
        return
    able = [n for n in picture.nodes if enough(counts(n, "capacity", resources), asked)]
    if not able:
        yield fail(
            "not registered",
            f"{text}: no node has so many; {_offered(picture)}",
            "correct name or number in the Pod's limits, or see `kubectl npu doctor`",
        )
        return
    fitting = [n for n in able if selected(pod, n)]
    if not fitting:
        yield fail(
            "selector",
            f"{text}: {_names(able)} could serve it; no labels there fit nodeSelector or affinity",
            "correct the Pod, or see `kubectl get nodes -L rockchip.com/npu-model`",
        )
        return
    yield from _obstacles(pod, asked, fitting, picture, text)


def _obstacles(
    pod: Json, asked: dict[str, int], fitting: Sequence[Json], picture: Picture, text: str
) -> Iterator[Finding]:
    found: list[Finding] = []
    busy: list[Json] = []
    closed: dict[str, list[Json]] = {}
    for node in fitting:
        taints = closing_taints(pod, node)
        for entry in taints:
            closed.setdefault(taint_text(entry), []).append(node)
        if not taints and not enough(free(node, picture.pods, picture.resources), asked):
            busy.append(node)
    if busy:
        found.append(_busy(pod, busy, asked, picture, text))
    for taint, nodes in sorted(closed.items()):
        found.append(_closed(taint, nodes, picture, text))
    if len(busy) + len({name_of(n) for nodes in closed.values() for n in nodes}) < len(fitting):
        found.append(
            warn(
                "scheduler", f"{text}; the scheduler says: {verdict(pod)}", "`kubectl describe pod`"
            )
        )
    yield from sorted(found, key=lambda finding: finding.check != "surge")


def _closed(taint: str, nodes: Sequence[Json], picture: Picture, text: str) -> Finding:
    names = _names(nodes)
    if not taint.startswith(OWN_TAINTS):
        cordoned = taint.startswith("node.kubernetes.io/unschedulable")
        return warn(
            "cordon" if cordoned else "taint",
            f"{text}: {names} {'is cordoned' if cordoned else f'has the taint {taint}'}",
            "`kubectl uncordon`" if cordoned else "tolerate it, or have it removed",
        )
    states = [f"{name_of(n)} {heat(name_of(n), n, picture)}" for n in nodes[:_NAMES]]
    return warn(
        "heat",
        f"{text}: {names} takes no new work, too hot ({taint}): {'; '.join(states)}",
        "wait until it has cooled and the hold has passed: `kubectl npu why NODE`",
    )


def heat(name: str, node: Json, picture: Picture) -> str:
    """Return what is known of the heat of a node in a few words."""
    known = picture.guard.get(name)
    if known is not None:
        warmest = max((d["celsius"] for d in known["devices"] if d["celsius"]), default=None)
        limit = known["thresholdsCelsius"].get("hot_leave")
        at = "" if warmest is None else f" at {warmest:.1f} °C"
        return f"is {known['state']}{at} since {known['since']}, opens below {limit} °C"
    conditions = node.get("status", {}).get("conditions", [])
    told = next((c for c in conditions if c["type"] == "NPUOverheated"), None)
    return "is hot" if told is None else f"{told['reason']} since {told['lastTransitionTime']}"


def _busy(
    pod: Json, busy: Sequence[Json], asked: dict[str, int], picture: Picture, text: str
) -> Finding:
    predecessors = [
        full_name(other)
        for other in picture.pods
        if _same_deployment(pod, other)
        and requests(other, picture.resources)
        and any(holds(other, name_of(n)) for n in busy)
    ]
    if predecessors:
        return fail(
            "surge",
            f"{text}: its own predecessor {', '.join(predecessors[:_NAMES])} has the NPU and ends "
            "only when this Pod runs",
            "set `strategy: {type: Recreate}` or `maxSurge: 0`; for now, delete the old Pod",
        )
    users = sorted(
        full_name(other)
        for other in picture.pods
        if requests(other, picture.resources).keys() & asked.keys()
        and any(holds(other, name_of(node)) for node in busy)
    )
    lost = [
        name_of(node)
        for node in busy
        if not enough(counts(node, "allocatable", picture.resources), asked)
    ]
    said = (
        f"held by {', '.join(users[:_NAMES])}{' …' if len(users) > _NAMES else ''}" if users else ""
    )
    withdrawn = (
        f"not offered now by {', '.join(lost[:_NAMES])} (`kubectl npu why NODE`)" if lost else ""
    )
    return warn(
        "no capacity",
        f"{text}: nothing is free on {_names(busy)}; {'; '.join(filter(None, (said, withdrawn)))}",
        "wait, end a Pod, or add boards: `kubectl npu who`",
    )


def _same_deployment(pod: Json, other: Json) -> bool:
    """Tell whether two Pods are of different generations of one Deployment."""
    mine, theirs = _generation(pod), _generation(other)
    same_namespace = pod["metadata"].get("namespace") == other["metadata"].get("namespace")
    return bool(
        mine and theirs and same_namespace and mine[0] == theirs[0] and mine[1] != theirs[1]
    )


def _generation(pod: Json) -> tuple[str, str] | None:
    """Return the Deployment of a Pod and the hash of its template."""
    suffix = pod["metadata"].get("labels", {}).get("pod-template-hash")
    for owner in pod["metadata"].get("ownerReferences", []):
        if owner["kind"] == "ReplicaSet" and suffix and owner["name"].endswith(f"-{suffix}"):
            return owner["name"].removesuffix(f"-{suffix}"), suffix
    return None


def verdict(pod: Json) -> str:
    """Return the scheduler's own words."""
    conditions = pod.get("status", {}).get("conditions", [])
    said = next((c.get("message") for c in conditions if c["type"] == "PodScheduled"), None)
    return said or "nothing; it has not decided yet"


def _offered(picture: Picture) -> str:
    most: dict[str, int] = {}
    for node in picture.nodes:
        for resource, count in counts(node, "capacity", picture.resources).items():
            most[resource] = max(most.get(resource, 0), count)
    offered = [f"{count} {name}" for name, count in sorted(most.items()) if count]
    return f"one node has at most: {', '.join(offered)}" if offered else "no node offers any NPU"


def _names(nodes: Sequence[Json]) -> str:
    names = [name_of(node) for node in nodes]
    more = len(names) - _NAMES
    return ", ".join(names[:_NAMES]) + (f" and {more} more" if more > 0 else "")

"""The six questions to a cluster whose NPU Pods do not run, in the order in which to ask them.

Pure: what the API server and the logs say is an argument. The kubelet is not asked.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kubectl_npu.claims import runtime, serves_claims
from kubectl_npu.client import Json
from kubectl_npu.finding import Finding, fail, ok, warn
from kubectl_npu.picture import counts, enough, free, full_name, is_ready, listed, requests
from kubectl_npu.placement import selected
from kubectl_npu.why_pod import verdict

COMPONENT = "app.kubernetes.io/component=plugin,app.kubernetes.io/name=npu-platform"
STARTED = "Starting the device plugin"
FOUND = "Found device"
REGISTERED = "Registered resource"
KNOWN = "The kubelet knows the driver"
_INSTALL = "install the chart, or look into the right cluster: `kubectl config current-context`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was read. ``logs`` are by plugin Pod, ``devices`` the names in ``/dev`` by Pod.

    ``resources`` are the names under which NPUs are offered.
    """

    daemonsets: Sequence[Json] = ()
    plugin_pods: Sequence[Json] = ()
    nodes: Sequence[Json] = ()
    pods: Sequence[Json] = ()
    logs: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    resources: Collection[str] = ()


def checks(seen: Seen) -> Iterator[Finding]:
    """Answer all six; each stands for itself, so that a failure hides no other."""
    yield from _daemonset(seen)
    yield from _running(seen)
    yield from _logs(seen)
    yield from _offers(seen)
    yield from _users(seen)
    yield from _pending(seen)


def _daemonset(seen: Seen) -> Iterator[Finding]:
    if not seen.daemonsets:
        yield fail("1 DaemonSet", "there is no DaemonSet of the device plugin", _INSTALL)
    for item in seen.daemonsets:
        yield ok("1 DaemonSet", f"{full_name(item)} exists")


def _running(seen: Seen) -> Iterator[Finding]:
    for item in seen.daemonsets:
        status = item.get("status", {})
        wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
        if not wanted:
            yield warn(
                "2 running",
                f"{full_name(item)} is meant for no node",
                "compare its node selector and affinity with the labels of your NPU nodes",
            )
        elif ready < wanted:
            lame = ", ".join(
                f"{pod['metadata']['name']} on {pod['spec'].get('nodeName', 'no node')}"
                for pod in seen.plugin_pods
                if not is_ready(pod)
            )
            yield fail(
                "2 running",
                f"{full_name(item)}: {ready} of {wanted} ready; not: {lame or 'missing Pods'}",
                "`kubectl describe pod` and `kubectl logs` of these; where there is no Pod, the "
                "namespace must admit host paths (pod-security.kubernetes.io/enforce=privileged)",
            )
        else:
            yield ok("2 running", f"{full_name(item)}: ready on {ready} nodes")
    by_claim = {pod["spec"].get("nodeName") for pod in seen.plugin_pods if serves_claims(pod)}
    for node in seen.nodes:
        if node["metadata"]["name"] in by_claim:
            yield from (replace(found, check="2 running") for found in runtime(node))


def _logs(seen: Seen) -> Iterator[Finding]:
    for pod in seen.plugin_pods:
        name = full_name(pod)
        node = pod["spec"].get("nodeName", "")
        if name not in seen.logs:
            yield ok("3 log", f"{name} on {node}: its log was not read")
            continue
        lines = seen.logs[name].splitlines()
        devices = [line for line in lines if FOUND in line]
        expected = KNOWN if serves_claims(pod) else REGISTERED
        registered = [line for line in lines if expected in line]
        if devices and registered:
            yield ok("3 log", f"{name} on {node}: {len(devices)} x {FOUND}, {expected}")
        elif devices:
            yield fail(
                "3 log",
                f"{name} on {node}: found {len(devices)} devices and never registered",
                "see its lines `Cannot register`: the kubelet's directory or the resource's name",
            )
        elif STARTED not in seen.logs[name]:
            # What it found it said when it found it; the kubelet keeps the last 10 MiB of a log.
            yield ok("3 log", f"{name} on {node}: the beginning of the log is gone")
        else:
            yield ok(
                "3 log", f"{name} on {node}: no NPU found; `python -m plugin doctor` there says why"
            )


def _offers(seen: Seen) -> Iterator[Finding]:
    any_offer = False
    for node in seen.nodes:
        name = node["metadata"]["name"]
        capacity = counts(node, "capacity", seen.resources)
        allocatable = _allocatable(node, seen)
        for resource, count in capacity.items():
            any_offer = any_offer or allocatable.get(resource, 0) > 0
            text = (
                f"{name}: {resource} capacity {count}, allocatable {allocatable.get(resource, 0)}"
            )
            if allocatable.get(resource, 0) < count:
                yield warn(
                    "4 node",
                    text,
                    "devices that are listed and not allocatable are unhealthy or withdrawn: the "
                    "plugin's page /allocations on that node has the reason of each; where it has "
                    "none, the kubelet remembers a plugin or an NPU that is gone",
                )
            else:
                yield ok("4 node", text)
    if not any_offer:
        yield fail(
            "4 node",
            f"no node offers one of {', '.join(sorted(seen.resources)) or 'our resources'}",
            "see the answers above; a new registration shows within 10 s. With plugin.mode dra the "
            "guard publishes what plugins have: does one run?"
            if any(serves_claims(pod) for pod in seen.plugin_pods)
            else "see the answers above; a new registration shows within 10 s",
        )


def _users(seen: Seen) -> Iterator[Finding]:
    found = False
    for pod in seen.pods:
        asked = requests(pod, seen.resources)
        if not asked or pod.get("status", {}).get("phase") != "Running":
            continue
        found = True
        name = full_name(pod)
        text = f"{name} runs on {pod['spec'].get('nodeName')} with {listed(asked)}"
        devices = seen.devices.get(name)
        if devices is None:
            yield ok("5 Pod", f"{text}; its /dev was not looked at")
        elif devices:
            yield ok("5 Pod", f"{text} and sees {', '.join(devices)}")
        else:
            yield fail(
                "5 Pod",
                f"{text} and sees no device node",
                "it was started before the plugin had ever registered: delete the Pod; or the "
                "container runtime knows no CDI, which mode dra and deviceInjection cdi need",
            )
    if not found:
        yield warn("5 Pod", "no running Pod has an NPU", "try docs/examples/sample-pod.yaml")


def _pending(seen: Seen) -> Iterator[Finding]:
    waiting = [
        pod
        for pod in seen.pods
        if pod.get("status", {}).get("phase") == "Pending" and requests(pod, seen.resources)
    ]
    for pod in waiting:
        yield _cause(pod, seen)
    if not waiting:
        yield ok("6 Pending", "no Pod waits for an NPU")


def _cause(pod: Json, seen: Seen) -> Finding:
    asked = requests(pod, seen.resources)
    text = f"{full_name(pod)} waits for {listed(asked)}"
    offering = [node for node in seen.nodes if enough(_allocatable(node, seen), asked)]
    if not offering:
        return fail(
            "6 Pending",
            f"{text}: not registered: no node offers so many",
            "see 3 and 4; or the name or number in the Pod's limits is wrong",
        )
    matching = [node for node in offering if selected(pod, node)]
    if not matching:
        return fail(
            "6 Pending",
            f"{text}: selector: {len(offering)} nodes offer it and none has the labels it asks for",
            "correct nodeSelector or affinity, or label the node",
        )
    if not any(enough(free(node, seen.pods, seen.resources), asked) for node in matching):
        return warn(
            "6 Pending",
            f"{text}: in use: on {len(matching)} fitting nodes others have them",
            "wait, add nodes, or end a Pod: `kubectl get pods -A -o wide` (see 5)",
        )
    return warn("6 Pending", f"{text}: {verdict(pod)}", "see `kubectl describe pod` and its node")


def _allocatable(node: Json, seen: Seen) -> dict[str, int]:
    return counts(node, "allocatable", seen.resources)

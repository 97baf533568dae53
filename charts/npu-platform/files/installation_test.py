"""Check an installation from inside the cluster; `helm test` runs this in the guard's image.

Standard library only. Prints what it found and ends with 1 and a reason where a promise is broken.
"""

import argparse
import http.client
import json
import os
import ssl
import sys
import time
import urllib.parse
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
RETRY_SECONDS = 3.0


class BrokenError(Exception):
    """Something the platform promises is not so (yet); the message is for an administrator."""


def get(connection: http.client.HTTPConnection, path: str, headers: dict[str, str]) -> bytes:
    """Return the body of a successful answer; raises BrokenError."""
    where = f"{connection.host}:{connection.port}{path}"
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise BrokenError(f"{where} does not answer: {error}") from error
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise BrokenError(f"{where} answers {answer.status}: {body[:200]!r}")
    return body


def listed(address: tuple[str, int], path: str, selector: str = "") -> list[dict]:
    """Return the items of a list of the API server."""
    query = urllib.parse.urlencode({"labelSelector": selector})
    connection = http.client.HTTPSConnection(
        *address, timeout=10, context=ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    )
    token = (ACCOUNT / "token").read_text().strip()
    body = get(connection, f"{path}?{query}", {"Authorization": f"Bearer {token}"})
    return json.loads(body)["items"]


def offers(nodes: list[dict], resources: list[str]) -> dict[str, dict[str, int]]:
    """Return per node how many of each resource it offers; nodes that offer none are left out."""
    found = {}
    for node in nodes:
        allocatable = node.get("status", {}).get("allocatable", {})
        counts = {name: int(allocatable.get(name, 0)) for name in resources}
        if any(counts.values()):
            found[node["metadata"]["name"]] = {k: v for k, v in counts.items() if v}
    return found


def published(slices: list[dict], resources: list[str]) -> dict[str, dict[str, int]]:
    """Return per node how many devices of each resource claims can be given (plugin.mode dra)."""
    found: dict[str, dict[str, int]] = {}
    for item in slices:
        node = item["spec"].get("nodeName", "")
        for device in item["spec"].get("devices", []):
            name = device.get("attributes", {}).get("resource", {}).get("string")
            if name in resources and not device.get("taints"):
                counts = found.setdefault(node, {})
                counts[name] = counts.get(name, 0) + 1
    return found


def series(metrics: str, name: str) -> list[str]:
    """Return the lines of one metric."""
    return [line for line in metrics.splitlines() if line.startswith((f"{name}{{", f"{name} "))]


def tls_context(folder: str) -> ssl.SSLContext:
    """Return how exporters that speak TLS are read: any name, signed by the authority there."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(f"{folder}/ca.crt")
    if Path(folder, "tls.crt").exists():
        context.load_cert_chain(f"{folder}/tls.crt", f"{folder}/tls.key")
    return context


def metrics_of(pod: dict, port: int, tls: str = "") -> str:
    """Return what a Pod exposes; ``tls`` is the folder with certificates, where it speaks TLS."""
    address = pod.get("status", {}).get("podIP")
    if not address:
        raise BrokenError(f"Pod {pod['metadata']['name']} has no address yet")
    connection = (
        http.client.HTTPSConnection(address, port, timeout=10, context=tls_context(tls))
        if tls
        else http.client.HTTPConnection(address, port, timeout=10)
    )
    return get(connection, "/metrics", {}).decode()


def check_exporters(
    pods: list[dict], nodes: dict[str, dict[str, int]], port: int, tls: str = ""
) -> None:
    """Raise BrokenError unless every node that offers an NPU has an exporter that sees it."""
    seen = {pod["spec"].get("nodeName"): metrics_of(pod, port, tls) for pod in pods}
    for node in nodes:
        if node not in seen:
            raise BrokenError(f"node {node} offers an NPU but no exporter runs on it")
        if not series(seen[node], "npu_info"):
            raise BrokenError(f"the exporter on node {node} sees no NPU (no series npu_info)")
    print(f"ok: {len(seen)} exporters answer, {len(nodes)} of them see an NPU")


def check_guards(pods: list[dict], port: int) -> None:
    """Raise BrokenError unless exactly one guard leads."""
    leaders = [
        pod["metadata"]["name"]
        for pod in pods
        if any(
            float(line.rsplit(" ", 1)[1]) == 1
            for line in series(metrics_of(pod, port), "npu_thermal_guard_leader")
        )
    ]
    if len(leaders) != 1:
        raise BrokenError(f"{len(leaders)} of {len(pods)} guards lead; it must be exactly one")
    print(f"ok: guard {leaders[0]} leads, {len(pods)} run")


def check(options: argparse.Namespace) -> None:
    """Check every promise once."""
    nodes = listed(options.api, "/api/v1/nodes")
    nodes_with_npu = offers(nodes, options.resource)
    if options.slices:
        slices = listed(options.api, "/apis/resource.k8s.io/v1/resourceslices", options.slices)
        nodes_with_npu |= published(slices, options.resource)
    if not nodes_with_npu:
        raise BrokenError(
            f"none of {len(nodes)} nodes offers {' or '.join(options.resource)}: no node has an NPU"
            " whose driver works, or no device plugin runs there (kubectl get pods -o wide; its"
            " log says what it found). To try the platform without boards: simulator.enabled=true"
        )
    for node, counts in sorted(nodes_with_npu.items()):
        print(f"ok: {node} offers {', '.join(f'{k}: {v}' for k, v in counts.items())}")
    path = f"/api/v1/namespaces/{options.namespace}/pods"
    instance = f"app.kubernetes.io/instance={options.instance}"
    for component in options.component:
        pods = listed(options.api, path, f"{instance},app.kubernetes.io/component={component}")
        if component == "exporter":
            check_exporters(pods, nodes_with_npu, options.port, options.exporter_tls)
        if component == "guard":
            check_guards(pods, options.port)


def main(arguments: list[str] | None = None) -> int:
    """Check until all is well or the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--instance", required=True)
    parser.add_argument("--resource", action="append", required=True)
    parser.add_argument("--slices", default="", help="labels of ResourceSlices to count, too")
    parser.add_argument("--component", action="append", default=[])
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--exporter-tls", default="", help="folder with the exporters' ca.crt")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args(arguments)
    options.api = (
        os.environ["KUBERNETES_SERVICE_HOST"],
        int(os.environ["KUBERNETES_SERVICE_PORT"]),
    )
    end = time.monotonic() + options.seconds
    said = ""
    while True:
        try:
            check(options)
        except BrokenError as problem:
            if time.monotonic() + RETRY_SECONDS > end:
                print(f"FAILED: {problem}", file=sys.stderr)
                return 1
            if str(problem) != said:
                said = str(problem)
                print(f"not yet: {said}", file=sys.stderr)
            time.sleep(RETRY_SECONDS)
        else:
            return 0


if __name__ == "__main__":
    sys.exit(main())

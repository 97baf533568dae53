"""A cluster as the demo and the tests see it: kubectl, and waiting with a reason."""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ci import tools
from ci.command import CommandError, run
from ci.patience import patient

T = TypeVar("T")

#: A Kubernetes object or list as JSON.
Json = Any


class WaitError(Exception):
    """Something did not come true in time; the message says what was seen last."""


def until(
    seen: Callable[[], T],
    accept: Callable[[T], bool] = bool,
    *,
    seconds: float,
    what: str,
    every: float = 0.5,
) -> T:
    """Call ``seen`` until ``accept`` takes its value and return that value.

    Raises WaitError naming ``what`` and the last value, or the last error of the cluster.
    """
    limit = patient(seconds)
    end = time.monotonic() + limit
    last: object = None
    while True:
        try:
            value = seen()
            if accept(value):
                return value
            last = value
        except CommandError as error:
            last = error
        if time.monotonic() >= end:
            raise WaitError(f"{what}: not within {limit:.0f} s; last seen: {last}")
        time.sleep(every)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kube:
    """One cluster, reached by a kubeconfig file and perhaps a context of it."""

    kubeconfig: Path
    context: str | None = None

    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = 60) -> str:
        """Run kubectl and return what it printed; raises CommandError."""
        command = [str(tools.kubectl()), f"--kubeconfig={self.kubeconfig}"]
        if self.context:
            command.append(f"--context={self.context}")
        return _run([*command, *arguments], purpose="ask the cluster", stdin=stdin, seconds=seconds)

    def helm(self, *arguments: str, version: str = "4", seconds: float = 300) -> str:
        """Run helm and return what it printed; raises CommandError."""
        command = [str(tools.helm(version)), *arguments, f"--kubeconfig={self.kubeconfig}"]
        if self.context:
            command.append(f"--kube-context={self.context}")
        return _run(command, purpose="run helm", seconds=seconds)

    def get(self, *arguments: str) -> Json:
        """Return an object, or a list object, as JSON."""
        return json.loads(self.kubectl("get", "-o", "json", *arguments))

    def items(self, *arguments: str) -> list[Json]:
        """Return the items of a list."""
        items: list[Json] = self.get(*arguments)["items"]
        return items

    def raw(self, path: str) -> str:
        """Return the answer to a GET of an API path."""
        return self.kubectl("get", "--raw", path)

    def apply(self, *objects: Mapping[str, object]) -> None:
        """Create or change objects."""
        for item in objects:
            self.kubectl("apply", "-f", "-", stdin=json.dumps(item))

    def delete(self, *arguments: str, seconds: float = 60) -> None:
        """Delete what the arguments name and wait until it is gone; nothing there is fine."""
        self.kubectl("delete", "--ignore-not-found", "--wait", *arguments, seconds=seconds)

    def node(self, name: str) -> Json:
        """Return a Node."""
        return self.get("node", name)

    def allocatable(self, resource: str) -> dict[str, str | None]:
        """Return per node what it offers of ``resource``, None where it does not know it."""
        return {
            node["metadata"]["name"]: node["status"].get("allocatable", {}).get(resource)
            for node in self.items("nodes")
        }

    def taints(self, node: str) -> dict[str, Json]:
        """Return the taints of a node by key."""
        return {taint["key"]: taint for taint in self.node(node)["spec"].get("taints", [])}

    def pod_of(self, namespace: str, selector: str, node: str | None = None) -> Json:
        """Return the one running Pod that matches, on ``node`` if given; raises CommandError."""
        found = [
            pod
            for pod in self.items("pods", "-n", namespace, "-l", selector)
            if node in (None, pod["spec"].get("nodeName"))
            and "deletionTimestamp" not in pod["metadata"]
        ]
        if len(found) != 1:
            raise CommandError(
                f"{len(found)} Pods match {selector} on {node or 'any node'}, not one"
            )
        return found[0]

    def pod_http(self, pod: Json, path: str, *, port: int = 8080) -> str:
        """GET a path of a Pod's port through the API server."""
        meta = pod["metadata"]
        base = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}:{port}/proxy"
        return self.raw(f"{base}{path}")


def _run(argv: list[str], *, purpose: str, stdin: str | None = None, seconds: float) -> str:
    # KUBECONFIG of the caller must not reach helm or kubectl: the file is given explicitly.
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return run(
        argv, purpose=purpose, stdin=stdin, timeout_seconds=patient(seconds), env=environment
    )

"""The user's own kubectl: their configuration, their rights, and what these do not allow."""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

#: An object of the Kubernetes API, as JSON.
Json = dict[str, Any]

_FORBIDDEN = re.compile(
    r'cannot (?P<verb>\w+) resource "(?P<what>[^"]+)"[^\n]*?'
    r'(?:in the namespace "(?P<namespace>[^"]+)"|at the cluster scope)'
)
_ROLE = "the role npu-viewer of the chart allows it (value viewer.subjects)"
#: Kinds without a namespace.
_CLUSTER_WIDE = ("nodes", "resourceslices", "devicetaintrules")
_SHOWN = 300


class KubectlError(Exception):
    """kubectl could not be run, or failed; the message is its own."""


class RefusedError(KubectlError):
    """The API server does not allow it; the message names the right that is missing."""


class Client(Protocol):
    """What is asked of a cluster."""

    def run(self, *arguments: str) -> str:
        """Run kubectl with these arguments and return what it printed; raises KubectlError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubectl:
    """kubectl with the options of the user's command line."""

    options: Sequence[str] = field(default_factory=tuple)
    program: str = "kubectl"
    timeout_seconds: float = 30.0

    def run(self, *arguments: str) -> str:
        """Run it; raises KubectlError, RefusedError where the API server forbids it."""
        try:
            done = subprocess.run(
                [self.program, *self.options, *arguments],
                capture_output=True,
                # Logs and messages are whatever programs wrote.
                encoding="utf-8",
                errors="replace",
                timeout=self.timeout_seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise KubectlError(f"kubectl: {error}") from error
        if done.returncode:
            raise failure(arguments, done.stderr.strip())
        return done.stdout


def failure(arguments: Sequence[str], said: str) -> KubectlError:
    """Return the error for what kubectl said on its error output."""
    if "(Forbidden)" not in said:
        # Above its last line kubectl logs each attempt of its own.
        reason = said.splitlines()[-1] if said else "failed without a word"
        return KubectlError(f"kubectl {' '.join(arguments[:3])}: {reason[:_SHOWN]}")
    found = _FORBIDDEN.search(said)
    if found is None:
        return RefusedError(f"not allowed: {said[:_SHOWN]}; {_ROLE}")
    where = f"in namespace {found['namespace']}" if found["namespace"] else "in all namespaces"
    if found["what"] in _CLUSTER_WIDE:
        where = ""
    right = " ".join(filter(None, (found["verb"], found["what"], where)))
    return RefusedError(f"you may not {right}: left out; {_ROLE}")


def pod_page(client: Client, pod: Json, path: str) -> str:
    """Return a page of a Pod's port 8080, through the API server; raises KubectlError.

    A Pod that is probed by HTTPS speaks nothing else; the API server verifies no certificate then.
    """
    meta = pod["metadata"]
    containers = pod.get("spec", {}).get("containers", [])
    probes = [item.get("livenessProbe", {}).get("httpGet", {}) for item in containers]
    scheme = "https:" if any(probe.get("scheme") == "HTTPS" for probe in probes) else ""
    name = f"{scheme}{meta['name']}:8080"
    base = f"/api/v1/namespaces/{meta['namespace']}/pods/{name}/proxy"
    return client.run("get", "--raw", base + quote(path, safe="/?=&[]"))

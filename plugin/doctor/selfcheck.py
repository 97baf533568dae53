"""``python -m plugin selfcheck``: asks a cluster the six questions, with the caller's kubectl."""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence

from plugin.doctor.cluster import COMPONENT, Json, Seen, checks, full_name, requests
from plugin.doctor.finding import as_json, as_text, exit_code

_SECONDS = 30.0
_NAME = re.compile(r"davinci[0-9]+|dri/\S+|card[0-9]+|renderD[0-9]+|rknpu|accel[0-9]+")
_PREFIXES = ("rockchip.com/", "huawei.com/")
_PYTHON = """
import os
for folder in ("/dev", "/dev/dri", "/dev/accel"):
    print(*(os.listdir(folder) if os.path.isdir(folder) else ()), sep="\\n")
"""
#: Ways to list device nodes in images of all kinds, the second without a shell or coreutils.
_LISTINGS = (("ls", "/dev", "/dev/dri", "/dev/accel"), ("python3.13", "-c", _PYTHON))

#: Runs kubectl with arguments and returns its output; raises SelfcheckError.
Kubectl = Callable[..., str]


class SelfcheckError(Exception):
    """kubectl could not be run, or refused."""


def kubectl(*arguments: str) -> str:
    """Run kubectl as the caller; raises SelfcheckError."""
    try:
        done = subprocess.run(
            ["kubectl", *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SelfcheckError(f"kubectl: {error}") from error
    if done.returncode:
        raise SelfcheckError(f"kubectl {' '.join(arguments[:3])}: {done.stderr.strip()[:300]}")
    return done.stdout


def gather(run: Kubectl, resources: Sequence[str] = ()) -> Seen:
    """Read what the checks need; without ``resources`` everything of our vendors counts."""
    nodes = _items(run, "nodes")
    pods = _items(run, "pods", "-A")
    plugin_pods = _items(run, "pods", "-A", "-l", COMPONENT)
    known = set(resources) or {
        name
        for quantities in (
            *(node.get("status", {}).get("capacity", {}) for node in nodes),
            *(
                container.get("resources", {}).get("limits", {})
                for pod in pods
                for container in pod["spec"].get("containers", [])
            ),
        )
        for name in quantities
        if name.startswith(_PREFIXES)
    }
    return Seen(
        daemonsets=_items(run, "daemonsets", "-A", "-l", COMPONENT),
        plugin_pods=plugin_pods,
        nodes=nodes,
        pods=pods,
        logs={full_name(pod): _log(run, pod) for pod in plugin_pods},
        devices={
            full_name(pod): found
            for pod in pods
            if pod.get("status", {}).get("phase") == "Running"
            and requests(pod, known)
            and (found := _devices(run, pod)) is not None
        },
        resources=frozenset(known),
    )


def main(arguments: Sequence[str], run: Kubectl = kubectl) -> int:
    """Check, print, and return 0, or 1 where something failed or nothing could be asked."""
    parser = argparse.ArgumentParser(
        prog="python -m plugin selfcheck",
        description="Six questions to a cluster whose NPU Pods do not run. Uses your kubectl.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--resource",
        action="append",
        default=[],
        help="a resource name of yours, repeatable [default: those of our vendors' domains]",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    try:
        findings = list(checks(gather(run, options.resource)))
    except SelfcheckError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{as_json(findings) if options.json else as_text(findings)}\n")
    return exit_code(findings)


def _items(run: Kubectl, *what: str) -> list[Json]:
    items: list[Json] = json.loads(run("get", *what, "-o", "json"))["items"]
    return items


def _log(run: Kubectl, pod: Json) -> str:
    try:
        return run("logs", pod["metadata"]["name"], "-n", pod["metadata"]["namespace"])
    except SelfcheckError:
        return ""


def _devices(run: Kubectl, pod: Json) -> list[str] | None:
    """Return the NPU nodes in a Pod's ``/dev``, None where it cannot be looked at."""
    where = ("exec", pod["metadata"]["name"], "-n", pod["metadata"]["namespace"], "--")
    for listing in _LISTINGS:
        try:
            words = run(*where, *listing).split()
        except SelfcheckError:
            continue
        return sorted({word for word in words if _NAME.fullmatch(word)})
    return None

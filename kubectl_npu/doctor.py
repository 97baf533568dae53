"""``kubectl npu doctor``: asks a cluster the six questions, with the caller's kubectl."""

import re
from collections.abc import Sequence

from kubectl_npu.client import Client, Json, KubectlError
from kubectl_npu.gather import Reader
from kubectl_npu.picture import full_name, known_resources, requests
from kubectl_npu.questions import COMPONENT, Seen

_NAME = re.compile(r"davinci[0-9]+|dri/\S+|card[0-9]+|renderD[0-9]+|rknpu|accel[0-9]+")
_PYTHON = """
import os
for folder in ("/dev", "/dev/dri", "/dev/accel"):
    print(*(os.listdir(folder) if os.path.isdir(folder) else ()), sep="\\n")
"""
#: Ways to list device nodes in images of all kinds, the second without a shell or coreutils.
_LISTINGS = (("ls", "/dev", "/dev/dri", "/dev/accel"), ("python3.13", "-c", _PYTHON))


def gather(reader: Reader, resources: Sequence[str] = ()) -> Seen:
    """Read what the questions need; raises KubectlError where the cluster does not answer.

    Without ``resources`` everything of our vendors counts.
    """
    nodes, pods = reader.with_claims(reader.items("nodes"), reader.items("pods", "-A"))
    plugin_pods = reader.items("pods", "-A", "-l", COMPONENT)
    known = frozenset(resources) or known_resources(nodes, pods)
    logs = ((full_name(pod), _log(reader.client, pod)) for pod in plugin_pods)
    return Seen(
        daemonsets=reader.items("daemonsets", "-A", "-l", COMPONENT),
        plugin_pods=plugin_pods,
        nodes=nodes,
        pods=pods,
        logs={name: log for name, log in logs if log is not None},
        devices={
            full_name(pod): found
            for pod in pods
            if pod.get("status", {}).get("phase") == "Running"
            and requests(pod, known)
            and (found := _devices(reader.client, pod)) is not None
        },
        resources=known,
    )


def _log(client: Client, pod: Json) -> str | None:
    """Return what a Pod has logged, None where it cannot be read."""
    try:
        return client.run("logs", pod["metadata"]["name"], "-n", pod["metadata"]["namespace"])
    except KubectlError:
        return None


def _devices(client: Client, pod: Json) -> list[str] | None:
    """Return the NPU nodes in a Pod's ``/dev``, None where it cannot be looked at."""
    where = ("exec", pod["metadata"]["name"], "-n", pod["metadata"]["namespace"], "--")
    for listing in _LISTINGS:
        try:
            words = client.run(*where, *listing).split()
        except KubectlError:
            continue
        return sorted({word for word in words if _NAME.fullmatch(word)})
    return None

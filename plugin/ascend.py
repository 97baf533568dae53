"""What a container gets with Ascend chips, beside their device nodes. Pure.

Huawei's container runtime injects nodes and driver files for a container whose environment names
chips. Without it the plugin hands out both itself; with it, both would do the same work twice, so
it is one of them.
"""

import re
from collections.abc import Sequence
from typing import Literal

from npu.model import Npu

#: ``devices``: nodes and files by the kubelet. ``runtime``: only the environment that
#: ascend-docker-runtime reads. ``auto``: the second where that runtime started the plugin itself.
Injection = Literal["devices", "runtime", "auto"]

#: Chips for ascend-docker-runtime, by physical id; virtual ones by their own.
ENV_VISIBLE_DEVICES = "ASCEND_VISIBLE_DEVICES"
ENV_RUNTIME_OPTIONS = "ASCEND_RUNTIME_OPTIONS"
#: What ascend-docker-runtime puts into every container it starts.
ENV_RUNTIME = "ASCEND_DOCKER_RUNTIME"

_NUMBER = re.compile(r"(v?)davinci([0-9]+)")


def uses_runtime(injection: Injection, runtime_variable: str | None) -> bool:
    """Tell whether ascend-docker-runtime injects; ``runtime_variable`` is what it set here."""
    if injection == "auto":
        return runtime_variable == "True"
    return injection == "runtime"


def is_ascend(npu: Npu) -> bool:
    """Tell whether an NPU is an Ascend chip or a part of one."""
    return npu.mode == "davinci"


def runtime_environment(npus: Sequence[Npu]) -> dict[str, str]:
    """Return the environment by which ascend-docker-runtime injects ``npus``."""
    matches = [match for npu in npus if (match := _NUMBER.fullmatch(npu.id)) is not None]
    environment = {ENV_VISIBLE_DEVICES: ",".join(match[2] for match in matches)}
    if any(match[1] for match in matches):
        environment[ENV_RUNTIME_OPTIONS] = "VIRTUAL"
    return environment

"""What a visitor's shell needs to work on the demonstration: programs, kubeconfig, addresses.

The programs are links in a folder of the cluster, so that nothing is installed and all of it goes
with the cluster.
"""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ci import kubectl_plugin, tools
from ci.cluster import Cluster
from ci.prometheus import Prometheus

#: Addresses of all embedded clusters, see ``ci.cluster.plan``: a proxy knows nothing of them.
_NETWORKS: Final = "198.18.0.0/15"
#: Variables that are put in front of what the shell has: variable → separator.
_LISTS: Final = {"PATH": ":", "NO_PROXY": ",", "no_proxy": ","}


def variables(cluster: Cluster) -> dict[str, str]:
    """Return what to set, for ``PATH`` and ``NO_PROXY`` what to put first.

    kubectl, helm and ``kubectl npu`` are in the folder for the ``PATH``, which is made here.
    Raises LookupError where there is no such cluster.
    """
    prometheus = Prometheus.beside(cluster)
    folder = cluster.folder / "programs"
    folder.mkdir(exist_ok=True)
    for program in (tools.kubectl(), tools.helm()):
        _link(folder / program.name, program)
    plugin = folder / "kubectl-npu"
    plugin.write_bytes(kubectl_plugin.program())
    plugin.chmod(0o755)
    return {
        "KUBECONFIG": str(cluster.kubeconfig),
        "PROMETHEUS": prometheus.url,
        "PATH": str(folder),
        "NO_PROXY": _NETWORKS,
        "no_proxy": _NETWORKS,
    }


def environment(wanted: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with ``wanted``, the result of ``variables``, in it."""
    joined = {
        name: _LISTS[name].join([value, present[name]])
        for name, value in wanted.items()
        if name in _LISTS and present.get(name)
    }
    return {**present, **wanted, **joined}


def lines(wanted: Mapping[str, str]) -> str:
    """Return the same as lines for a POSIX shell."""
    return "\n".join(
        f"export {name}={shlex.quote(value)}"
        + (f'"${{{name}:+{_LISTS[name]}${name}}}"' if name in _LISTS else "")
        for name, value in wanted.items()
    )


def _link(link: Path, target: Path) -> None:
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.symlink_to(target)
    temporary.replace(link)

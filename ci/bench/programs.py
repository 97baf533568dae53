"""The Go side of the benchmark: the official sample device plugin, and a kubelet with a stopwatch.

Both are built in one module with the versions that the kubelet of that release is built with, so
that their gRPC is the kubelet's.
"""

import hashlib
from pathlib import Path

from ci import gobuild, kubernetes
from ci.gobuild import Recipe

KUBERNETES = kubernetes.DEFAULT_VERSION
PEER = "sample-device-plugin"
KUBELET = "stopwatch"
#: What the sample plugin offers, and the directory that is built into it.
PEER_RESOURCE = "example.com/resource"
PEER_DIRECTORY = Path("/var/lib/kubelet")
_SOURCE = Path(__file__).with_name("kubelet.go")


def build(cache: Path) -> Path:
    """Return the folder with the two programs, built on first use."""
    source = _SOURCE.read_text()
    version = f"{KUBERNETES}-{hashlib.sha256(source.encode()).hexdigest()[:8]}"
    return gobuild.build(
        lambda: _recipe(version, source, cache), name="bench", version=version, cache=cache
    )


def _recipe(version: str, source: str, cache: Path) -> Recipe:
    like_kubelet = kubernetes.recipe(KUBERNETES, kubernetes.published_go_mod(KUBERNETES, cache), ())
    module = like_kubelet.go_mod.splitlines()[0].removeprefix("module ")
    return Recipe(
        name="bench",
        version=version,
        go_mod=like_kubelet.go_mod,
        packages=(f"k8s.io/kubernetes/test/images/{PEER}", f"{module}/{KUBELET}"),
        sources={f"{KUBELET}/main.go": source},
    )

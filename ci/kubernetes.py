"""Real Kubernetes programs, built from the Go module k8s.io/kubernetes.

The module requires its staging modules (``k8s.io/api`` and others) at version v0.0.0 and
replaces them by folders which the published module does not carry. Each is pointed at its own
release instead: staging modules of Kubernetes 1.X.Y are published as v0.X.Y.
"""

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ci import gobuild, gotool
from ci.command import run
from ci.gobuild import Recipe

DEFAULT_VERSION = "1.37.2"
OLDEST_MINOR = 30
COMMANDS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubeadm",
)
_VERSION = re.compile(r"^1\.(?P<minor>\d+)\.(?P<patch>\d+)$")
_REPLACED = re.compile(r"^\s*(?:replace\s+)?(?P<module>\S+) => \./staging/")
_KEPT = re.compile(r"^(?:go|godebug) ")


class VersionError(ValueError):
    """Not a version of Kubernetes that this project runs on."""


def minor(version: str) -> int:
    """Return the minor number of a version such as ``1.37.2``, or raise ``VersionError``."""
    match = _VERSION.match(version)
    if match is None or int(match["minor"]) < OLDEST_MINOR:
        message = f"{version!r} is not a Kubernetes version from 1.{OLDEST_MINOR}.0 on (1.X.Y)"
        raise VersionError(message)
    return int(match["minor"])


def build(version: str, cache: Path, commands: Sequence[str] = COMMANDS) -> Path:
    """Return the folder with the programs of Kubernetes ``version``, built on first use."""
    minor(version)
    return gobuild.build(
        lambda: recipe(version, published_go_mod(version, cache), commands),
        name="kubernetes",
        version=version,
        cache=cache,
    )


def published_go_mod(version: str, cache: Path) -> str:
    """Return the text of the module's own ``go.mod``, fetched by the Go tool."""
    with tempfile.TemporaryDirectory(prefix="npu-platform-") as folder:
        Path(folder, "go.mod").write_text("module npu-platform.invalid/fetch\n")
        answer = run(
            [gotool.go(cache), "mod", "download", "-json", f"k8s.io/kubernetes@v{version}"],
            purpose=f"fetch the sources of Kubernetes {version}",
            cwd=Path(folder),
            env=gotool.environment(cache),
        )
    return Path(json.loads(answer)["GoMod"]).read_text()


def recipe(version: str, published: str, commands: Sequence[str] = COMMANDS) -> Recipe:
    """Return how to build ``commands``, given the module's published ``go.mod``."""
    staging = sorted(
        {match["module"] for line in published.splitlines() if (match := _REPLACED.match(line))}
    )
    release = f"v0.{version.removeprefix('1.')}"
    kept = [line for line in published.splitlines() if _KEPT.match(line)]
    go_mod = [
        "module npu-platform.invalid/kubernetes",
        *kept,
        f"require k8s.io/kubernetes v{version}",
        *(f"replace {module} => {module} {release}" for module in staging),
    ]
    stamp = "k8s.io/component-base/version"
    return Recipe(
        name="kubernetes",
        version=version,
        go_mod="\n".join(go_mod) + "\n",
        packages=tuple(f"k8s.io/kubernetes/cmd/{command}" for command in commands),
        # Without these a server calls itself v0.0.0 and clients misjudge what it can do.
        ldflags=(
            f"-s -w -X {stamp}.gitVersion=v{version} -X {stamp}.gitMajor=1 "
            f"-X {stamp}.gitMinor={minor(version)} -X {stamp}.gitTreeState=clean"
        ),
        needs_free_bytes=8 << 30,
    )

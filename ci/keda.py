"""KEDA, the autoscaler of services, built from its Go module, and its own schema of its objects."""

import json
import re
import tempfile
from pathlib import Path
from typing import Final, cast

import yaml

from ci import gobuild, gotool
from ci.cache import cache_dir
from ci.chart import Json
from ci.command import run
from ci.gobuild import Recipe
from ci.operator_crds import strict

VERSION: Final = "2.21.0"
_MODULE = "github.com/kedacore/keda/v2"
_SUM = "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps="
#: Scales to and from zero and serves the queries of triggers; answers the autoscaler's questions.
COMMANDS: Final = ("operator", "adapter")
_CARRIED = re.compile(r"^(?:go|godebug|replace) ")


class KedaSourceError(RuntimeError):
    """The module is not what was pinned."""


def build(cache: Path) -> Path:
    """Return the folder with the programs ``operator`` and ``adapter``, built on first use."""
    return gobuild.build(lambda: recipe(cache), name="keda", version=VERSION, cache=cache)


def recipe(cache: Path) -> Recipe:
    """Return how to build KEDA; the module's own replacements hold."""
    published = (module(cache) / "go.mod").read_text().splitlines()
    return Recipe(
        name="keda",
        version=VERSION,
        go_mod="\n".join(
            [
                "module npu-platform.invalid/keda",
                *(line for line in published if _CARRIED.match(line)),
                f"require {_MODULE} v{VERSION}",
                "",
            ]
        ),
        packages=tuple(f"{_MODULE}/cmd/{command}" for command in COMMANDS),
        ldflags=f"-s -w -X {_MODULE}/version.Version={VERSION}",
        needs_free_bytes=6 << 30,
    )


def module(cache: Path) -> Path:
    """Return the folder of KEDA's sources, which hold its manifests too."""
    with tempfile.TemporaryDirectory(prefix="npu-platform-") as folder:
        answer = run(
            [gotool.go(cache), "mod", "download", "-json", f"{_MODULE}@v{VERSION}"],
            purpose="fetch the sources of KEDA",
            cwd=Path(folder),
            env=gotool.environment(cache),
            timeout_seconds=300,
        )
    found = json.loads(answer)
    if found["Sum"] != _SUM:
        message = f"{_MODULE} {VERSION} has the hash {found['Sum']}, pinned is {_SUM}"
        raise KedaSourceError(message)
    return Path(found["Dir"])


def schema(kind: str) -> Json:
    """Return the strict JSON schema of ``spec`` of a kind such as ScaledObject."""
    file = module(cache_dir()) / f"config/crd/bases/keda.sh_{kind.lower()}s.yaml"
    definition: Json = yaml.safe_load(file.read_text())
    (version,) = definition["spec"]["versions"]
    return cast("Json", strict(version["schema"]["openAPIV3Schema"]["properties"]["spec"]))

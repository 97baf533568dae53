"""Schemas of the objects of Kueue and other neighbours, from their pinned Go modules."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import yaml

from ci import gotool
from ci.cache import cache_dir
from ci.chart import Json
from ci.command import run
from ci.operator_crds import strict


class PeerSourceError(RuntimeError):
    """The module is not what was pinned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A module, and the file in it that defines a kind (``{plural}`` is its lower-case plural)."""

    module: str
    version: str
    checksum: str
    file: str


#: By API group.
SOURCES: Final = {
    "kueue.x-k8s.io": Source(
        module="sigs.k8s.io/kueue",
        version="0.17.0",
        checksum="h1:7hzb38M4eKGzYW+CFv2s1L+swzzacUCHOCXxZmAV90I=",
        file="config/components/crd/bases/kueue.x-k8s.io_{plural}.yaml",
    ),
    "cert-manager.io": Source(
        module="github.com/cert-manager/cert-manager",
        version="1.18.2",
        checksum="h1:H2P75ycGcTMauV3gvpkDqLdS3RSXonWF2S49QGA1PZE=",
        file="deploy/crds/crd-{plural}.yaml",
    ),
    "nfd.k8s-sigs.io": Source(
        module="sigs.k8s.io/node-feature-discovery",
        version="0.18.3",
        checksum="h1:q5/qpyxrasI/F6838lflFNGAUszpMNRuFwornPLYdxQ=",
        file="deployment/base/nfd-crds/nfd-api-crds.yaml",
    ),
}


def group(item: Json) -> str:
    """Return the API group of an object."""
    return str(item["apiVersion"]).rpartition("/")[0]


def schema(item: Json) -> Json:
    """Return the strict JSON schema of an object's ``spec``; LookupError where there is none."""
    source = SOURCES[group(item)]
    plural = f"{item['kind'].lower()}s"
    version = item["apiVersion"].rpartition("/")[2]
    file = _folder(source) / source.file.format(plural=plural)
    # Where a chart is made of it, lines of the template are left in between, of no use here.
    lines = [line for line in file.read_text().splitlines() if "{{" not in line]
    for definition in yaml.safe_load_all("\n".join(lines)):
        if definition["spec"]["names"]["kind"] != item["kind"]:
            continue
        for served in definition["spec"]["versions"]:
            if served["name"] == version and served["served"]:
                properties = served["schema"]["openAPIV3Schema"]["properties"]
                return cast("Json", strict(properties["spec"]))
    raise LookupError(f"{source.module} {source.version} serves no {item['kind']} {version}")


def _folder(source: Source) -> Path:
    with tempfile.TemporaryDirectory(prefix="npu-platform-") as folder:
        answer = run(
            [
                gotool.go(cache_dir()),
                "mod",
                "download",
                "-json",
                f"{source.module}@v{source.version}",
            ],
            purpose=f"fetch the schemas of {source.module}",
            cwd=Path(folder),
            env=gotool.environment(cache_dir()),
            timeout_seconds=300,
        )
    found = json.loads(answer)
    if found["Sum"] != source.checksum:
        message = f"{source.module} has the hash {found['Sum']}, pinned is {source.checksum}"
        raise PeerSourceError(message)
    return Path(found["Dir"])

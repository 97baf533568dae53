"""Bill of materials of an image: CycloneDX 1.6, from the locks and the files that were used.

It names what the image was made from, not what a scanner guesses: Debian packages of the base with
the hashes of their files, wheels with theirs, and the project's own code by its commit.
"""

import json
import uuid
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import quote

from images.layer import digest_of
from images.lock import Pin, sha256_of
from images.oci import Image

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int"

SPECIFICATION: Final = "1.6"
_NAMESPACE = uuid.UUID("6b0d6a2e-6c0b-5b5c-9e0f-1f6f3b6f7a11")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredient:
    """One thing an image was made from; ``purl`` identifies it (package URL)."""

    name: str
    version: str
    purl: str
    sha256: str
    licence: str | None = None
    """An SPDX expression, where the package itself gives one."""


def debian(pins: Mapping[str, Pin], arch: str) -> list[Ingredient]:
    """Return the packages of the base."""
    return [
        Ingredient(
            name=name,
            version=pin.version,
            purl=f"pkg:deb/debian/{name}@{quote(pin.version)}?arch={arch}&distro=debian-13",
            sha256=pin.sha256,
        )
        for name, pin in sorted(pins.items())
    ]


def wheels(paths: Iterable[Path]) -> list[Ingredient]:
    """Return the Python packages of wheels, with the licence in their metadata."""
    found = []
    for path in paths:
        with zipfile.ZipFile(path) as wheel:
            (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
            metadata = HeaderParser().parsestr(wheel.read(name).decode())
        found.append(
            Ingredient(
                name=metadata["Name"],
                version=metadata["Version"],
                purl=f"pkg:pypi/{metadata['Name'].lower().replace('_', '-')}@{metadata['Version']}",
                sha256=sha256_of(path),
                licence=metadata["License-Expression"],
            )
        )
    return sorted(found, key=lambda one: one.purl)


def document(image: Image, ingredients: Iterable[Ingredient], *, revision: str) -> bytes:
    """Return the bill of materials of ``image``; without a date, so that two builds agree."""
    name, _, tag = image.reference.rpartition("/")[2].partition(":")
    digest = digest_of(image.manifest)
    listed = list(ingredients)
    root = f"pkg:oci/{name}@{quote(digest, safe='')}?arch={image.arch}&tag={tag}"
    body: Json = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, digest)}",
        "version": 1,
        "metadata": {
            "component": {
                "bom-ref": root,
                "type": "container",
                "name": f"npu-platform-{name}",
                "version": tag,
                "purl": root,
                "hashes": [_hash(digest.removeprefix("sha256:"))],
                "licenses": [{"expression": "Apache-2.0"}],
                "properties": [{"name": "npu-platform:revision", "value": revision}],
            }
        },
        "components": [_component(one) for one in listed],
        "dependencies": [{"ref": root, "dependsOn": [one.purl for one in listed]}],
    }
    return (json.dumps(body, indent=1, ensure_ascii=False) + "\n").encode()


def _component(one: Ingredient) -> Json:
    component: dict[str, Json] = {
        "bom-ref": one.purl,
        "type": "library",
        "name": one.name,
        "version": one.version,
        "purl": one.purl,
        "hashes": [_hash(one.sha256)],
    }
    if one.licence:
        component["licenses"] = [{"expression": one.licence}]
    return component


def _hash(sha256: str) -> Json:
    return {"alg": "SHA-256", "content": sha256}

"""The JSON schema of CycloneDX 1.6, as the project publishes it inside its Python library."""

import json
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
from referencing import Registry, Resource

from ci import wheels
from ci.cache import cache_dir
from ci.wheels import Wheel

_WHEEL = Wheel(
    distribution="cyclonedx-python-lib",
    version="11.12.0",
    sha256="0e807521a921a5c3cb8ce1153f8a61d29eedfe76a46aac2796b7c6b573391a54",
)
_SCHEMAS = ("bom-1.6", "spdx", "jsf-0.82")


def complaints(document: bytes) -> list[str]:
    """Return what is wrong with a bill of materials, nothing if it is valid."""
    schemas = _schemas()
    registry: Registry[Any] = Registry().with_resources(
        (f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json", Resource.from_contents(schema))
        for name, schema in schemas.items()
    )
    checker = jsonschema.Draft7Validator(schemas["bom-1.6"], registry=registry)
    return [
        f"{'/'.join(map(str, error.absolute_path))}: {error.message}"
        for error in checker.iter_errors(json.loads(document))
    ]


def _schemas() -> dict[str, Any]:
    target = cache_dir() / "tools" / f"{_WHEEL.distribution}-{_WHEEL.version}"
    folder = wheels.provide(_WHEEL, target, _unpack)
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in _SCHEMAS}


def _unpack(wheel: Path, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in _SCHEMAS:
            inside = f"cyclonedx/schema/_res/{name}.SNAPSHOT.schema.json"
            (target / f"{name}.json").write_bytes(archive.read(inside))

"""Write images as archives that every importer of the field reads.

The file is an OCI image layout in a tar (containerd, k3s, podman, skopeo) which also has the
``manifest.json`` of older ``docker load``. Names are in the annotations containerd reads.
"""

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

from images.layer import Layer, digest_of

Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | int | None"

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
# A fixed date: the same inputs give the same image on any day.
_CREATED = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A complete image: ``reference`` is its full name with tag, ``arch`` Debian's (= Go's)."""

    reference: str
    arch: str
    layers: tuple[Layer, ...]
    config: bytes
    manifest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """How a container of the image starts. ``user`` is ``uid:gid``."""

    entrypoint: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str]
    user: str
    ports: tuple[str, ...] = ()


def compose(
    reference: str,
    arch: str,
    layers: Sequence[Layer],
    process: Process,
    labels: Mapping[str, str],
) -> Image:
    """Return the image made of ``layers``, the lowest first."""
    config = _encode(_config(arch, layers, process, labels))
    manifest = _encode(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, digest_of(config), len(config)),
            "layers": [_descriptor(_LAYER, one.digest, one.compressed_bytes) for one in layers],
        }
    )
    return Image(
        reference=reference, arch=arch, layers=tuple(layers), config=config, manifest=manifest
    )


def _config(
    arch: str, layers: Sequence[Layer], process: Process, labels: Mapping[str, str]
) -> dict[str, Json]:
    return {
        "created": _CREATED,
        **platform(arch),
        "config": {
            "User": process.user,
            "Env": [f"{name}={value}" for name, value in sorted(process.environment.items())],
            "Entrypoint": process.entrypoint,
            **({"Cmd": process.arguments} if process.arguments else {}),
            **({"ExposedPorts": {port: {} for port in process.ports}} if process.ports else {}),
            "WorkingDir": "/",
            "Labels": dict(labels),
        },
        "rootfs": {"type": "layers", "diff_ids": [one.diff_id for one in layers]},
        "history": [{"created": _CREATED, "created_by": f"layer {one.name}"} for one in layers],
    }


def platform(arch: str) -> dict[str, Json]:
    """Return the platform fields of an architecture as containerd normalizes them."""
    variant: dict[str, Json] = {"variant": "v8"} if arch == "arm64" else {}
    return {"architecture": arch, "os": "linux", **variant}


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, Json]:
    return {"mediaType": media_type, "digest": digest, "size": size}


def _encode(value: Json) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def index(image: Image) -> bytes:
    """Return the ``index.json`` that names the image."""
    return _encode(
        {
            "schemaVersion": 2,
            "mediaType": _INDEX,
            "manifests": [
                {
                    **_descriptor(_MANIFEST, digest_of(image.manifest), len(image.manifest)),
                    "platform": platform(image.arch),
                    "annotations": {
                        "io.containerd.image.name": image.reference,
                        "org.opencontainers.image.ref.name": image.reference,
                    },
                }
            ],
        }
    )


def docker_manifest(image: Image) -> bytes:
    """Return the ``manifest.json`` for importers that know no OCI layout."""
    return _encode(
        [
            {
                "Config": blob_name(digest_of(image.config)),
                "RepoTags": [image.reference],
                "Layers": [blob_name(one.digest) for one in image.layers],
            }
        ]
    )


def blob_name(digest: str) -> str:
    """Return where a blob lies in an image layout."""
    return f"blobs/{digest.replace(':', '/')}"


def write_archive(image: Image, target: BinaryIO) -> None:
    """Write the image as one tar file."""
    small = {
        "oci-layout": _encode({"imageLayoutVersion": "1.0.0"}),
        "index.json": index(image),
        "manifest.json": docker_manifest(image),
        blob_name(digest_of(image.config)): image.config,
        blob_name(digest_of(image.manifest)): image.manifest,
    }
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in small.items():
            archive.addfile(entry(name, len(data)), io.BytesIO(data))
        for one in {one.digest: one for one in image.layers}.values():
            with one.path.open("rb") as content:
                archive.addfile(entry(blob_name(one.digest), one.compressed_bytes), content)


def entry(name: str, size: int) -> tarfile.TarInfo:
    """Return the tar header of a file of ``size`` bytes; all else is fixed."""
    header = tarfile.TarInfo(name)
    header.size, header.mode = size, 0o644
    return header


def save(image: Image, path: Path) -> None:
    """Write the image to the file ``path``, which is complete or untouched."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.new")
    with scratch.open("wb") as handle:
        write_archive(image, handle)
    scratch.replace(path)

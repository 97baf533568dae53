"""One image for several architectures, and all of them in one archive.

An image index names a manifest per platform; whoever pulls takes the one that fits. The archive is
an OCI image layout whose ``index.json`` names one such index per service.
"""

import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import yaml

from images.layer import digest_of
from images.oci import Image, blob_name, entry, platform

INDEX: Final = "application/vnd.oci.image.index.v1+json"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
#: The chart's block of values for an image; the workload is what `helm test` runs, and others are
#: in manifests of people's own.
_BLOCKS: Final = {
    **{name: name for name in ("plugin", "exporter", "guard", "simulator")},
    "workload": "tests",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """An image for several architectures; ``reference`` is its full name with tag."""

    reference: str
    images: tuple[Image, ...]
    content: bytes

    @property
    def digest(self) -> str:
        """The digest by which the image is pinned; the same in every registry."""
        return digest_of(self.content)


def compose(images: Sequence[Image]) -> Index:
    """Return the index of images of one reference, one per architecture."""
    (reference,) = {image.reference for image in images}
    manifests = [
        {
            "mediaType": MANIFEST,
            "digest": digest_of(image.manifest),
            "size": len(image.manifest),
            "platform": platform(image.arch),
        }
        for image in sorted(images, key=lambda image: image.arch)
    ]
    body = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
    content = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return Index(reference=reference, images=tuple(images), content=content)


def by_service(images: Iterable[Image]) -> list[Index]:
    """Return an index per reference, in the order references first appear."""
    groups: dict[str, list[Image]] = {}
    for image in images:
        groups.setdefault(image.reference, []).append(image)
    return [compose(group) for group in groups.values()]


def pinned_values(indexes: Sequence[Index], registry: str | None = None) -> str:
    """Return values of the chart that pin every image by digest, and perhaps say the registry."""
    values: dict[str, object] = {}
    if registry:
        values["image"] = {"registry": registry}
    for one in indexes:
        block = _BLOCKS.get(one.reference.rpartition("/")[2].partition(":")[0])
        if block:
            values[block] = {"image": {"digest": one.digest}}
    head = "# Images by digest, which is the same in every registry they are copied to.\n"
    return head + yaml.safe_dump(values, sort_keys=True)


def write_archive(indexes: Sequence[Index], target: BinaryIO) -> None:
    """Write all of ``indexes`` as one tar file; a blob that several share is in it once."""
    top = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [
            {
                "mediaType": INDEX,
                "digest": one.digest,
                "size": len(one.content),
                "annotations": {
                    "io.containerd.image.name": one.reference,
                    "org.opencontainers.image.ref.name": one.reference,
                },
            }
            for one in indexes
        ],
    }
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        small = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": _encode(top)}
        for name, data in (small | dict(_small_blobs(indexes))).items():
            archive.addfile(entry(name, len(data)), io.BytesIO(data))
        layers = {layer.digest: layer for one in indexes for i in one.images for layer in i.layers}
        for digest, layer in sorted(layers.items()):
            with layer.path.open("rb") as content:
                archive.addfile(entry(blob_name(digest), layer.compressed_bytes), content)


def _small_blobs(indexes: Sequence[Index]) -> Iterator[tuple[str, bytes]]:
    for one in indexes:
        for data in (one.content, *(d for i in one.images for d in (i.manifest, i.config))):
            yield blob_name(digest_of(data)), data


def _encode(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def save(indexes: Sequence[Index], path: Path) -> None:
    """Write the archive to the file ``path``, which is complete or untouched."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.new")
    with scratch.open("wb") as handle:
        write_archive(indexes, handle)
    scratch.replace(path)

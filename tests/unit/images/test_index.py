"""Images for several architectures: what pullers and importers look for."""

import io
import json
import tarfile
from pathlib import Path

import pytest
import yaml

from images import index
from images.layer import Layer, digest_of, write_layer
from images.oci import Image, Process, compose
from images.tree import File

PROCESS = Process(entrypoint=("/p",), environment={}, user="65532:65532")


@pytest.fixture
def images(tmp_path: Path) -> list[Image]:
    """Give two services for two architectures over one layer that all share."""

    def layer(name: str) -> Layer:
        return write_layer(name, {name: File(name.encode())}, tmp_path / name)

    shared = layer("base")
    return [
        compose(f"localhost/x/{service}:1", arch, [shared, layer(f"{service}-{arch}")], PROCESS, {})
        for arch in ("arm64", "amd64")
        for service in ("plugin", "workload")
    ]


def test_an_index_names_a_manifest_per_platform(images: list[Image]) -> None:
    """Platforms are in a fixed order and as container runtimes write them."""
    plugin, workload = index.by_service(images)
    assert (plugin.reference, workload.reference) == (
        "localhost/x/plugin:1",
        "localhost/x/workload:1",
    )
    body = json.loads(plugin.content)
    assert [one["platform"] for one in body["manifests"]] == [
        {"architecture": "amd64", "os": "linux"},
        {"architecture": "arm64", "os": "linux", "variant": "v8"},
    ]
    assert plugin.digest == digest_of(plugin.content)
    assert plugin.content == index.compose(list(reversed(plugin.images))).content


def test_the_archive_is_complete_and_has_nothing_twice(images: list[Image]) -> None:
    """Whatever a descriptor names is a blob of that digest and size."""
    target = io.BytesIO()
    index.write_archive(index.by_service(images), target)
    target.seek(0)
    with tarfile.open(fileobj=target) as archive:
        names = archive.getnames()
        files = {
            entry.name: content.read()
            for entry in archive
            if (content := archive.extractfile(entry)) is not None
        }
    assert len(names) == len(set(names))

    def follow(descriptor: dict[str, object]) -> None:
        digest = str(descriptor["digest"])
        data = files[f"blobs/{digest.replace(':', '/')}"]
        assert digest_of(data) == digest
        assert len(data) == descriptor["size"]
        if "json" in str(descriptor["mediaType"]):
            body = json.loads(data)
            for child in (*body.get("manifests", ()), *body.get("layers", ())):
                follow(child)
            if "layers" in body:
                follow(body["config"])

    top = json.loads(files["index.json"])
    for one in top["manifests"]:
        follow(one)
    assert {one["annotations"]["io.containerd.image.name"] for one in top["manifests"]} == {
        "localhost/x/plugin:1",
        "localhost/x/workload:1",
    }


def test_digests_are_values_of_the_chart(images: list[Image]) -> None:
    """Each image has its place in the values, the workload that of the tests."""
    indexes = index.by_service(images)
    values = yaml.safe_load(index.pinned_values(indexes, "r.example/npu"))
    assert values == {
        "image": {"registry": "r.example/npu"},
        "plugin": {"image": {"digest": indexes[0].digest}},
        "tests": {"image": {"digest": indexes[1].digest}},
    }

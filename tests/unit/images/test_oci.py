"""Image archives: what importers look for."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from images.layer import Layer, write_layer
from images.oci import Image, Process, compose, write_archive
from images.tree import File

REFERENCE = "localhost/npu-platform/plugin:1.2.3"


@pytest.fixture
def layers(tmp_path: Path) -> list[Layer]:
    return [
        write_layer(name, {name: File(name.encode())}, tmp_path / name) for name in ("base", "own")
    ]


def image(layers: list[Layer], arch: str = "arm64") -> Image:
    process = Process(
        entrypoint=("/usr/bin/python3.13", "-m", "plugin"),
        environment={"B": "2", "A": "1"},
        user="65532:65532",
        ports=("8080/tcp",),
    )
    return compose(REFERENCE, arch, layers, process, {"title": "plugin"})


def archive_of(image: Image) -> dict[str, bytes]:
    target = io.BytesIO()
    write_archive(image, target)
    target.seek(0)
    with tarfile.open(fileobj=target) as archive:
        return {
            entry.name: content.read()
            for entry in archive
            if (content := archive.extractfile(entry)) is not None
        }


def loaded(files: dict[str, bytes], name: str) -> Any:  # noqa: ANN401 - JSON of a specification
    return json.loads(files[name])


def blob(files: dict[str, bytes], digest: str) -> bytes:
    return files[f"blobs/{digest.replace(':', '/')}"]


def test_each_blob_has_the_digest_in_its_name(layers: list[Layer]) -> None:
    """An importer checks every one of them."""
    files = archive_of(image(layers))

    for name, content in files.items():
        if name.startswith("blobs/sha256/"):
            assert name.rpartition("/")[2] == hashlib.sha256(content).hexdigest()


def test_from_index_to_layers(layers: list[Layer]) -> None:
    """The index leads to a manifest, that to a configuration and to layers in order."""
    files = archive_of(image(layers))

    [entry] = loaded(files, "index.json")["manifests"]
    manifest = json.loads(blob(files, entry["digest"]))
    config = json.loads(blob(files, manifest["config"]["digest"]))

    assert loaded(files, "oci-layout") == {"imageLayoutVersion": "1.0.0"}
    assert entry["size"] == len(blob(files, entry["digest"]))
    assert [one["digest"] for one in manifest["layers"]] == [one.digest for one in layers]
    assert [one["size"] for one in manifest["layers"]] == [one.compressed_bytes for one in layers]
    assert config["rootfs"]["diff_ids"] == [one.diff_id for one in layers]
    assert len(config["history"]) == len(layers)


def test_the_full_name_is_where_containerd_reads_it(layers: list[Layer]) -> None:
    """Without it `ctr import` would invent a name with a date."""
    [entry] = loaded(archive_of(image(layers)), "index.json")["manifests"]

    assert entry["annotations"] == {
        "io.containerd.image.name": REFERENCE,
        "org.opencontainers.image.ref.name": REFERENCE,
    }


@pytest.mark.parametrize(
    ("arch", "platform"),
    [
        ("amd64", {"architecture": "amd64", "os": "linux"}),
        ("arm64", {"architecture": "arm64", "os": "linux", "variant": "v8"}),
    ],
)
def test_platforms(layers: list[Layer], arch: str, platform: dict[str, str]) -> None:
    """Index and configuration agree on the platform."""
    files = archive_of(image(layers, arch))

    [entry] = loaded(files, "index.json")["manifests"]
    manifest = json.loads(blob(files, entry["digest"]))
    config = json.loads(blob(files, manifest["config"]["digest"]))

    assert entry["platform"] == platform
    assert {name: config[name] for name in platform} == platform


def test_the_process(layers: list[Layer]) -> None:
    """Exec form, a numeric user (runAsNonRoot needs one), sorted environment, fixed date."""
    config = json.loads(image(layers).config)

    assert config["created"] == "1970-01-01T00:00:00Z"
    assert config["config"] == {
        "Entrypoint": ["/usr/bin/python3.13", "-m", "plugin"],
        "Env": ["A=1", "B=2"],
        "ExposedPorts": {"8080/tcp": {}},
        "Labels": {"title": "plugin"},
        "User": "65532:65532",
        "WorkingDir": "/",
    }


def test_older_docker_finds_its_manifest(layers: list[Layer]) -> None:
    """`docker load` before 25 reads manifest.json: paths within the archive, and the name."""
    files = archive_of(image(layers))

    [entry] = loaded(files, "manifest.json")

    assert entry["RepoTags"] == [REFERENCE]
    assert json.loads(files[entry["Config"]])["os"] == "linux"
    assert all(path in files for path in entry["Layers"])


def test_two_archives_are_the_same(layers: list[Layer]) -> None:
    """Nothing in the archive comes from the time or place of writing."""
    assert archive_of(image(layers)) == archive_of(image(layers))

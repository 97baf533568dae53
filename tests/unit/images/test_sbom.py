"""Bills of materials and statements of provenance: complete, valid, the same twice."""

import json
import zipfile
from pathlib import Path

import pytest

from ci import cyclonedx
from images import provenance, sbom
from images.layer import write_layer
from images.lock import Pin
from images.oci import Image, Process, compose
from images.tree import File

PROCESS = Process(entrypoint=("/p",), environment={}, user="65532:65532")
PINS = {"zlib1g": Pin(version="1:1.3.dfsg+really1.3.1-1", sha256="a" * 64)}


@pytest.fixture
def image(tmp_path: Path) -> Image:
    """Give an image."""
    layer = write_layer("base", {"base": File(b"base")}, tmp_path / "base")
    return compose("localhost/npu-platform/plugin:1.2.3", "arm64", [layer], PROCESS, {})


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Give a wheel with a licence in its metadata."""
    path = tmp_path / "Some_Thing-2.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "some_thing-2.0.dist-info/METADATA",
            "Metadata-Version: 2.4\nName: Some_Thing\nVersion: 2.0\nLicense-Expression: MIT\n\n",
        )
    return path


def test_bill_of_materials_is_valid(image: Image, wheel: Path) -> None:
    """CycloneDX's own schema accepts it, and every ingredient is in it once."""
    ingredients = [*sbom.debian(PINS, "arm64"), *sbom.wheels([wheel])]
    text = sbom.document(image, ingredients, revision="abc")

    assert cyclonedx.complaints(text) == []
    body = json.loads(text)
    assert [one["purl"] for one in body["components"]] == [
        "pkg:deb/debian/zlib1g@1%3A1.3.dfsg%2Breally1.3.1-1?arch=arm64&distro=debian-13",
        "pkg:pypi/some-thing@2.0",
    ]
    assert body["components"][1]["licenses"] == [{"expression": "MIT"}]
    assert body["dependencies"][0]["dependsOn"] == [one["bom-ref"] for one in body["components"]]
    assert body["metadata"]["component"]["version"] == "1.2.3"
    assert text == sbom.document(image, ingredients, revision="abc")


def test_the_schema_is_no_rubber_stamp(image: Image) -> None:
    """A document with a wrong hash is refused."""
    body = json.loads(sbom.document(image, sbom.debian(PINS, "arm64"), revision="abc"))
    body["components"][0]["hashes"][0]["content"] = "zz"
    assert cyclonedx.complaints(json.dumps(body).encode())


def test_provenance_names_results_and_inputs(tmp_path: Path) -> None:
    """Who has the statement knows what to check out, and what must come out."""
    lock = tmp_path / "lock"
    lock.write_text("pins")
    text = provenance.statement(
        {"b": "2" * 64, "a": "1" * 64}, version="1.2.3", revision="abc", inputs={"lock": lock}
    )
    body = json.loads(text)
    assert body["_type"] == "https://in-toto.io/Statement/v1"
    assert [one["name"] for one in body["subject"]] == ["a", "b"]
    definition = body["predicate"]["buildDefinition"]
    assert definition["externalParameters"] == {"version": "1.2.3"}
    assert definition["resolvedDependencies"][0] == {
        "name": "source",
        "digest": {"gitCommit": "abc"},
    }
    assert len(definition["resolvedDependencies"][1]["digest"]["sha256"]) == 64

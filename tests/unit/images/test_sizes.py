"""Sizes: shared layers count once."""

from pathlib import Path

import pytest

from images import sizes
from images.layer import Layer
from images.oci import Image
from images.sizes import Size


def layer(name: str, compressed: int, unpacked: int) -> Layer:
    return Layer(
        name=name,
        digest=f"sha256:{name}",
        diff_id=f"sha256:{name}",
        compressed_bytes=compressed,
        unpacked_bytes=unpacked,
        path=Path(name),
    )


def image(service: str, *layers: Layer) -> Image:
    return Image(
        reference=f"localhost:5000/npu-platform/{service}:1",
        arch="arm64",
        layers=layers,
        config=b"",
        manifest=b"",
    )


BASE = layer("base", 10, 30)
PAGES = layer("pages", 1, 2)


def test_a_node_stores_a_shared_layer_once() -> None:
    """Two images on one base cost the base once."""
    both = [image("a", BASE, layer("x", 1, 3)), image("b", BASE, layer("y", 2, 4))]

    assert sizes.size_of(both) == Size(compressed=13, unpacked=37)


def test_the_same_layer_on_another_stack_is_unpacked_again() -> None:
    """Snapshots are named by everything below them, blobs by their content."""
    both = [image("a", BASE, PAGES), image("b", BASE, layer("x", 1, 3), PAGES)]

    assert sizes.size_of(both) == Size(compressed=12, unpacked=37)


def test_the_table_names_services_and_sums() -> None:
    """A registry with a port does not confuse the names."""
    lines = sizes.table([image("plugin", BASE), image("exporter", BASE, PAGES)])

    assert [line.split()[0] for line in lines[1:3]] == ["plugin", "exporter"]
    assert lines[-1].startswith("arm64 node: everything")


@pytest.mark.parametrize(("compressed", "complains"), [(30_000_000, False), (30_000_001, True)])
def test_the_budget(compressed: int, complains: bool) -> None:  # noqa: FBT001
    """Thirty million bytes are allowed, one more is not."""
    complaint = sizes.over_budget([image("plugin", layer("base", compressed, 1))])

    assert (complaint is not None) is complains

"""All images of an architecture, with what they were made from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ci.cache import cache_dir
from ci.lock import exclusive
from images import sbom
from images.build import REGISTRY, Builder
from images.oci import Image
from images.sbom import Ingredient
from images.services import SERVICES

ARCHITECTURES: Final = ("amd64", "arm64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """An image and its ingredients."""

    image: Image
    ingredients: tuple[Ingredient, ...]


def made(
    checkout: Path,
    arch: str,
    *,
    tag: str,
    registry: str = REGISTRY,
    names: Sequence[str] = (),
) -> Iterator[Made]:
    """Build images and yield them; one builder at a time uses the cache."""
    with exclusive(cache_dir() / "images" / "lock", reason="it is building images"):
        builder = Builder(checkout, cache_dir(), arch)
        for name in names or SERVICES:
            service = SERVICES[name]
            image = builder.image(service, registry=registry, tag=tag)
            base = sbom.debian(builder.lock.pins(f"base {arch}"), arch)
            python = sbom.wheels(builder.wheels_of(service))
            yield Made(image=image, ingredients=(*base, *python))

"""What the images weigh, one by one and on a node that stores shared layers once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from images.oci import Image

#: All services on one arm64 node, compressed as they travel and lie in a registry.
NODE_BUDGET_BYTES = 30_000_000
#: What every node runs: plugin and exporter.
DAEMON_GOAL_BYTES = 22_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Bytes compressed and unpacked."""

    compressed: int
    unpacked: int


def size_of(images: Iterable[Image]) -> Size:
    """Return the size of ``images`` together.

    Compressed, a layer counts once (content store). Unpacked, it counts once for each different
    stack below it (snapshots are named by the chain of layers).
    """
    blobs: dict[str, int] = {}
    chains: dict[tuple[str, ...], int] = {}
    for image in images:
        stack: tuple[str, ...] = ()
        for layer in image.layers:
            blobs[layer.digest] = layer.compressed_bytes
            stack = (*stack, layer.diff_id)
            chains[stack] = layer.unpacked_bytes
    return Size(compressed=sum(blobs.values()), unpacked=sum(chains.values()))


def table(images: Sequence[Image]) -> list[str]:
    """Return the sizes as lines for people; MB are 10⁶ bytes."""
    arch = images[0].arch
    lines = [f"{'image':<24}{'compressed MB':>15}{'unpacked MB':>13}   layers"]
    for image in images:
        layers = " ".join(f"{one.name} {one.compressed_bytes / 1e6:.2f}" for one in image.layers)
        lines.append(_line(short_name(image), size_of([image])) + f"   {layers}")
    daemons = [image for image in images if short_name(image) in ("plugin", "exporter")]
    lines.append(_line(f"{arch} node: daemons", size_of(daemons)))
    lines.append(_line(f"{arch} node: everything", size_of(images)))
    return lines


def _line(name: str, size: Size) -> str:
    return f"{name:<24}{size.compressed / 1e6:>15.2f}{size.unpacked / 1e6:>13.1f}"


def short_name(image: Image) -> str:
    """Return the service in an image's reference."""
    return image.reference.rpartition("/")[2].partition(":")[0]


def over_budget(images: Sequence[Image]) -> str | None:
    """Return a sentence when the images together exceed what a node may store."""
    total = size_of(images).compressed
    if total <= NODE_BUDGET_BYTES:
        return None
    return (
        f"all images of a {images[0].arch} node take {total / 1e6:.2f} MB compressed, "
        f"the budget is {NODE_BUDGET_BYTES / 1e6:.0f} MB"
    )

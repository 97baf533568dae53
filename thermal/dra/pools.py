"""From what a node offers to what has to be written of its ResourceSlices. Pure.

A pool is all slices of a driver on a node. A scheduler goes by the newest generation, and uses
nothing of a pool until as many slices of it are there as each of them says. So a change of anything
rewrites them all under a new generation, and one that was interrupted is completed under its own:
no mixture of old and new devices is ever used.
"""

from collections.abc import Iterator, Sequence

from thermal.dra.objects import Write
from thermal.dra.offers import OfferedDriver
from thermal.dra.slices import SliceRecord, devices_of, new_slice, slice_name, slice_patch
from thermal.objects import Json, NodeRecord

#: A ResourceSlice whose devices may have taints holds no more.
SLICE_DEVICES = 64
#: No generation of ours comes there, and not all of JSON's readers count further.
_GENERATIONS = 1 << 53


def pool_writes(
    node: NodeRecord, present: Sequence[SliceRecord], driver: OfferedDriver, *, release: str
) -> tuple[Write, ...]:
    """Return the writes that make a pool what its driver offers, none where it is, in order.

    ``present`` are its slices. What is missing is made for a driver that the kubelet knows, as it
    deletes the slices of any other; until then the rest stays as it is. What somebody made of a
    slice that no update can put right goes first: another pool, or a generation without a next one.
    """
    spoiled = [
        item for item in present if item.pool != node.name or item.generation >= _GENERATIONS
    ]
    if spoiled:
        return tuple(_deletion(item.name, node) for item in spoiled)
    wanted = _wanted(node.name, driver)
    found = {item.name: item for item in present}
    missing = wanted.keys() - found.keys()
    if missing and not (driver.registered and driver.devices):
        return ()
    newest = max((item.generation for item in present), default=0)
    begun = [item for item in present if item.generation == newest]
    right = all(
        item.name in wanted and (item.devices, item.count) == (wanted[item.name], len(wanted))
        for item in begun
    )
    generation = newest if begun and right else newest + 1
    return tuple(_writes(node, driver, wanted, found, generation, release=release))


def _writes(
    node: NodeRecord,
    driver: OfferedDriver,
    wanted: dict[str, tuple[Json, ...]],
    found: dict[str, SliceRecord],
    generation: int,
    *,
    release: str,
) -> Iterator[Write]:
    pool: Json = {
        "name": node.name,
        "generation": generation,
        "resourceSliceCount": len(wanted),
    }
    for name, devices in wanted.items():
        item = found.get(name)
        if item is None:
            body = new_slice(
                name, node, driver=driver.name, pool=pool, devices=devices, release=release
            )
            yield Write(operation="create", name="", node=node.name, body=body)
        elif item.generation != generation:
            body = slice_patch(item, pool=pool, devices=devices)
            yield Write(operation="update", name=name, node=node.name, body=body)
    # Of an older generation, or of one that is complete without them.
    for name in sorted(found.keys() - wanted.keys()):
        yield _deletion(name, node)


def _deletion(name: str, node: NodeRecord) -> Write:
    return Write(operation="delete", name=name, node=node.name, body={})


def _wanted(node: str, driver: OfferedDriver) -> dict[str, tuple[Json, ...]]:
    """Return the devices of each slice; of a driver without devices there is one slice."""
    devices = devices_of(driver)
    parts = range(0, max(len(devices), 1), SLICE_DEVICES)
    return {
        slice_name(node, driver.name, part): devices[start : start + SLICE_DEVICES]
        for part, start in enumerate(parts)
    }

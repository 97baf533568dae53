"""What a container gets with its devices. Pure: the kubelet is answered from memory."""

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from npu import names
from npu.ids import slot_of, sort_key
from npu.model import DeviceNode, Npu
from plugin.ascend import is_ascend, runtime_environment
from plugin.config import LibraryMode
from plugin.devices import HELD_IN_OTHER_MODE, DeviceTable, Slot

#: Where a container finds the board's libraries in ``neutral`` mode: a folder that no image uses,
#: so that a library the image brings is never shadowed.
NEUTRAL_LIBRARY_DIR = "/opt/npu/lib"
#: Where rknn-toolkit-lite2 looks, by a path built into it.
SYSTEM_LIBRARY_DIR = "/usr/lib"
#: Vendor and class of CDI names; the device behind them is the NPU's identifier.
CDI_KIND = "npu-platform.io/npu"
_ROLES_BY_MODE = {"drm": "card", "misc": "misc", "accel": "accel"}


class AllocationError(Exception):
    """The identifiers cannot be handed out; ``reason`` is a short code for the metric."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGrant:
    """A device node, readable and writable; ``host_path`` as the container runtime sees it."""

    host_path: str
    container_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGrant:
    """A file or directory of the board, mounted read-only."""

    host_path: str
    container_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Everything one container gets; ``cdi_names`` stand for nodes and files."""

    nodes: tuple[NodeGrant, ...] = ()
    files: tuple[FileGrant, ...] = ()
    cdi_names: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The state of the board that allocations are answered from.

    The NPUs of ``table`` list only libraries that are fit to be mounted. ``extra_devices`` are
    paths of nodes that exist. ``container_paths`` are fixed names of nodes by role, ``cdi`` tells
    whether containers get CDI names in place of nodes and files, ``shares`` whether NPUs are
    offered in slots, ``informed`` whether the kubelet had told who holds what when the table was
    made. ``ascend_runtime`` tells that ascend-docker-runtime injects Ascend chips.
    """

    table: DeviceTable = field(default_factory=DeviceTable)
    library: LibraryMode = "neutral"
    cdi: bool = False
    container_paths: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    extra_devices: tuple[str, ...] = ()
    shares: bool = False
    max_slots_per_container: int = 1
    informed: bool = False
    ascend_runtime: bool = False


def grant(
    offer: Offer, resource: str, identifiers: Sequence[str], *, on_node: Callable[[str], str]
) -> Grant:
    """Return what a container gets for ``identifiers`` of ``resource``.

    ``on_node`` translates a path of the board into one of the node. Raises AllocationError.
    """
    return given_for(offer, usable_slots(offer, resource, identifiers), on_node=on_node)


def given_for(offer: Offer, slots: Sequence[Slot], *, on_node: Callable[[str], str]) -> Grant:
    """Return what belongs to ``slots``, whatever state they are in; their NPUs must be known.

    Raises AllocationError.
    """
    npus = tuple({slot.device: offer.table.npus[slot.device] for slot in slots}.values())
    if offer.ascend_runtime and all(map(is_ascend, npus)):
        return Grant(
            environment=_environment(offer, npus, slots, neutral=False) | runtime_environment(npus)
        )
    given = _everything(offer, npus, on_node)
    environment = _environment(offer, npus, slots, neutral=any(npu.libraries for npu in npus))
    if offer.cdi:
        names_ = tuple(f"{CDI_KIND}={npu.id}" for npu in npus)
        return Grant(cdi_names=names_, environment=environment)
    return replace(given, environment=environment)


def everything_of(offer: Offer, npu: Npu, on_node: Callable[[str], str]) -> Grant:
    """Return nodes and files of a whole NPU, without an environment."""
    return _everything(offer, (npu,), on_node)


def _everything(offer: Offer, npus: Sequence[Npu], on_node: Callable[[str], str]) -> Grant:
    nodes: dict[str, NodeGrant] = {}
    for npu in npus:
        for node in npu.nodes:
            _add(nodes, _inside(offer, node), on_node(node.stable_path), npu.id)
    for path in offer.extra_devices:
        nodes.setdefault(path, NodeGrant(host_path=on_node(path), container_path=path))
    return Grant(nodes=tuple(nodes.values()), files=_files(npus, offer.library, on_node))


def _inside(offer: Offer, node: DeviceNode) -> str:
    """Return the name of a node in containers."""
    return offer.container_paths.get(node.role, node.container_path)


def usable_slots(offer: Offer, resource: str, identifiers: Sequence[str]) -> tuple[Slot, ...]:
    """Return the slots of ``identifiers``, each once, in order. Raises AllocationError."""
    table = offer.table
    slots = {slot.id: slot for slot in table.of(resource)}
    found: dict[str, Slot] = {}
    for identifier in sorted(identifiers, key=sort_key):
        slot = slots.get(identifier)
        if slot is None or slot.device not in table.npus:
            offered = ", ".join(slots) or "none"
            raise AllocationError(
                "unknown_device",
                f"{identifier!r} is not an NPU of this node; {resource} has: {offered}. "
                "Delete the Pod, its replacement gets a device that exists.",
            )
        if slot.state == "unhealthy":
            raise AllocationError(
                "unhealthy_device",
                f"{identifier} cannot be used: {slot.reason}: {slot.detail}. "
                "Delete the Pod when the device is well again.",
            )
        # Slots withdrawn for another reason are still good: refusing one that the kubelet chose
        # just before would fail the Pod for good.
        if slot.reason == HELD_IN_OTHER_MODE:
            raise AllocationError(
                HELD_IN_OTHER_MODE,
                f"{identifier} cannot be used: {slot.detail}, from before the change of "
                "sharing.slots. Delete the Pod when that holder has ended.",
            )
        found[identifier] = slot
    if not found:
        raise AllocationError("no_device", f"a request for {resource} names no device")
    shared = [identifier for identifier in found if slot_of(identifier) is not None]
    if len(shared) > offer.max_slots_per_container:
        raise AllocationError(
            "too_many_slots",
            f"the container asks for {len(shared)} slots of {resource}; "
            f"sharing.maxSlotsPerContainer allows {offer.max_slots_per_container}, because more "
            "slots are no larger share of an NPU. Lower the request.",
        )
    return tuple(found.values())


def _add(nodes: dict[str, NodeGrant], container_path: str, host_path: str, device: str) -> None:
    entry = NodeGrant(host_path=host_path, container_path=container_path)
    if nodes.setdefault(container_path, entry) != entry:
        raise AllocationError(
            "path_conflict",
            f"{device} and another NPU both appear as {container_path} in a container; "
            "ask for one NPU per container.",
        )


def _files(
    npus: Sequence[Npu], mode: LibraryMode, on_node: Callable[[str], str]
) -> tuple[FileGrant, ...]:
    if mode == "none":
        return ()
    folder = NEUTRAL_LIBRARY_DIR if mode == "neutral" else SYSTEM_LIBRARY_DIR
    files: dict[str, FileGrant] = {}
    for npu in npus:
        for path in npu.files:
            files.setdefault(path, FileGrant(host_path=on_node(path), container_path=path))
        for library in npu.libraries:
            target = f"{folder}/{posixpath.basename(library.path)}"
            files.setdefault(
                target, FileGrant(host_path=on_node(library.path), container_path=target)
            )
    return tuple(files.values())


def _environment(
    offer: Offer, npus: Sequence[Npu], slots: Sequence[Slot], *, neutral: bool
) -> dict[str, str]:
    environment = {names.ENV_DEVICE_IDS: ",".join(slot.id for slot in slots)}
    node = _runtime_node(npus[0])
    if node is not None:
        environment[names.ENV_DEVICE] = _inside(offer, node)
    cores = sorted({core for slot in slots if slot.device == npus[0].id for core in slot.cores})
    if cores:
        # Advice for programs that take a core mask: no variable makes the runtime obey.
        environment[names.ENV_CORE_HINT] = ",".join(str(core) for core in cores)
    if neutral and offer.library == "neutral":
        environment[names.ENV_LIBRARY_DIR] = NEUTRAL_LIBRARY_DIR
    return environment


def _runtime_node(npu: Npu) -> DeviceNode | None:
    """Return the node the vendor's runtime opens: the card rather than the render node."""
    role = _ROLES_BY_MODE.get(npu.mode)
    return next((node for node in npu.nodes if node.role == role), None)

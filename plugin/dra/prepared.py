"""Claims that are prepared on this node: the record on disk, and what containers get for them.

The kubelet asks to prepare a claim again whenever it cannot know whether that was done, and a
container that restarts looks its CDI name up without any call. So what was promised is on disk
before it is promised, and comes back with the next start.
"""

import contextlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from daemon.logs import fields
from npu.names import ENV_DEVICE_IDS
from plugin.allocation import AllocationError, Offer, given_for
from plugin.cdi import CDI_VERSION, edits_of
from plugin.files import replace_file

log = logging.getLogger(__name__)

FILE_NAME = "npu-platform-checkpoint.json"
_LIMIT_BYTES = 4 << 20
_VERSION = 1
#: A claim's UID, and behind it the request where the claim has several.
_CDI_NAME = re.compile(r"(?P<uid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-(?P<request>.+))?")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A device of a claim. ``request`` is empty where it is for every request of the claim."""

    device: str
    request: str = ""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A prepared claim, and the boot of the machine in which it was."""

    namespace: str
    name: str
    uid: str
    boot: str
    shares: tuple[Share, ...]

    def by_request(self) -> dict[str, tuple[str, ...]]:
        """Return the devices of each request."""
        found: dict[str, tuple[str, ...]] = {}
        for share in self.shares:
            found[share.request] = (*found.get(share.request, ()), share.device)
        return found


class HeldDevice(Protocol):
    """A device that a container has by a claim, with the names by which it asked for it."""

    @property
    def namespace(self) -> str:
        """The claim's."""
        ...

    @property
    def name(self) -> str:
        """The claim's."""
        ...

    @property
    def device(self) -> str:
        """The device's name in its pool."""
        ...

    @property
    def cdi_names(self) -> Iterable[str]:
        """All of them, those of other drivers too."""
        ...


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    claims: tuple[Prepared, ...]
    complete: bool = True


@dataclass(slots=True)
class Checkpoint:
    """The record in one file. A file that makes no sense is put aside and counts as empty.

    ``problem`` says why, ``complete`` whether all claims are in it: where there was no record,
    those of running containers are not. The kubelet asks again only for Pods that start; what
    running ones have, it tells by PodResources.
    """

    path: Path
    problem: str | None = None
    complete: bool = False

    def load(self) -> dict[str, Prepared]:
        """Return the claims by UID."""
        self.complete = False
        try:
            with self.path.open("rb") as file:
                content = msgspec.json.decode(file.read(_LIMIT_BYTES), type=_File)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._set_aside(str(error))
            return {}
        if content.version != _VERSION:
            self._set_aside(f"version {content.version} is not {_VERSION}")
            return {}
        self.complete = content.complete
        return {claim.uid: claim for claim in content.claims}

    def save(self, claims: Iterable[Prepared], *, complete: bool) -> None:
        """Write the claims; they are on disk when this returns. Raises OSError."""
        ordered = tuple(sorted(claims, key=lambda claim: claim.uid))
        content = _File(version=_VERSION, claims=ordered, complete=complete)
        data = msgspec.json.encode(content)
        replace_file(self.path, data, mode=0o600, durable=True)
        self.problem, self.complete = None, complete

    def _set_aside(self, why: str) -> None:
        self.problem = f"{self.path}: {why}"
        log.error("The record of prepared claims cannot be used", extra=fields(reason=self.problem))
        with contextlib.suppress(OSError):
            self.path.rename(self.path.with_suffix(".broken"))


def boot_id(path: Path = _BOOT_ID) -> str:
    """Return what tells one boot of the machine from the next, empty where it is not known."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def from_held(driver: str, boot: str, held: Iterable[HeldDevice]) -> dict[str, Prepared]:
    """Return claims as they must have been prepared for what containers have, by UID."""
    found: dict[str, Prepared] = {}
    for item in held:
        for name in item.cdi_names:
            match = _CDI_NAME.fullmatch(name.removeprefix(f"{driver}/claim="))
            if match is None:
                continue
            share = Share(device=item.device, request=match["request"] or "")
            claim = found.get(match["uid"])
            shares = (share,) if claim is None else tuple(dict.fromkeys((*claim.shares, share)))
            found[match["uid"]] = Prepared(
                namespace=item.namespace,
                name=item.name,
                uid=match["uid"],
                boot=boot,
                shares=shares,
            )
    return found


def cdi_name(driver: str, uid: str, request: str) -> str:
    """Return the name by which a container gets the devices of a request."""
    return f"{driver}/claim={_cdi_device(uid, request)}"


def spec(
    driver: str,
    claims: Iterable[Prepared],
    offer: Offer,
    *,
    on_node: Callable[[str], str],
    refused: Callable[[Prepared, AllocationError], None] = lambda _claim, _error: None,
) -> Mapping[str, object] | None:
    """Return the CDI file for the prepared claims of a driver, None where it would be empty.

    A request whose NPU is not known (any more) has no entry: a container that needs it waits.
    ``on_node`` gives resolved paths: the file is younger than the numbers of device nodes.
    ``refused`` is told which claims get nothing, as their devices do not go together.
    """
    slots = {slot.id: slot for slot in offer.table.slots if slot.device in offer.table.npus}
    devices: list[dict[str, object]] = []
    for claim in sorted(claims, key=lambda item: item.uid):
        for request, names in claim.by_request().items():
            found = [slots[name] for name in names if name in slots]
            if len(found) != len(names):
                continue
            try:
                given = given_for(offer, found, on_node=on_node)
            except AllocationError as error:
                refused(claim, error)
                continue
            environment = {**given.environment, ENV_DEVICE_IDS: ",".join(names)}
            edits = {
                **edits_of(given),
                "env": [f"{name}={value}" for name, value in sorted(environment.items())],
            }
            devices.append({"name": _cdi_device(claim.uid, request), "containerEdits": edits})
    if not devices:
        return None
    return {"cdiVersion": CDI_VERSION, "kind": f"{driver}/claim", "devices": devices}


def _cdi_device(uid: str, request: str) -> str:
    return f"{uid}-{request}" if request else uid


def as_data(claims: Iterable[Prepared]) -> list[dict[str, object]]:
    """Return the claims for people and scripts."""
    return [
        json.loads(msgspec.json.encode(claim)) for claim in sorted(claims, key=lambda c: c.name)
    ]

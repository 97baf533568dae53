"""Devices that the kubelet's checkpoint keeps for containers that no longer exist.

The kubelet subtracts what is in ``kubelet_internal_checkpoint`` from what it hands out. After a
crash entries can stay there although no Pod has the device any more (kubernetes/kubernetes#130145),
and the node has less than it shows. Nothing but the kubelet may change the file, so stale entries
are only told. An init container's device is in the checkpoint and not in PodResources, hence the
time that must pass.
"""

import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from daemon.logs import fields

log = logging.getLogger(__name__)

#: The kubelet's file in its directory of device plugins.
FILE_NAME = "kubelet_internal_checkpoint"

#: How long an entry must have been without a Pod.
STALE_SECONDS = 120.0
_LIMIT_BYTES = 16 << 20


class CheckpointError(ValueError):
    """The file is not what kubelets write."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Entry:
    """An identifier that a container holds according to the checkpoint."""

    resource: str
    id: str
    pod_uid: str
    container: str


def parse(text: str, *, ours: Callable[[str], bool]) -> frozenset[Entry]:
    """Return the entries of our resources.

    The format is ``checkpoint.Data`` of the kubelet's device manager: identifiers by memory node.
    Raises CheckpointError.
    """
    try:
        entries = json.loads(text)["Data"]["PodDeviceEntries"] or []
        return frozenset(
            Entry(
                resource=entry["ResourceName"],
                id=identifier,
                pod_uid=entry["PodUID"],
                container=entry["ContainerName"],
            )
            for entry in entries
            if ours(entry["ResourceName"])
            for identifiers in entry["DeviceIDs"].values()
            for identifier in identifiers
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"not a checkpoint of devices: {error!r}") from error


class StaleEntries:
    """Remembers since when each entry has been without a Pod."""

    def __init__(self) -> None:
        self._since: dict[Entry, float] = {}

    def observe(
        self, entries: Iterable[Entry], held: Mapping[str, Collection[str]], now: float
    ) -> None:
        """Take one look at the checkpoint and at what Pods hold, by resource."""
        self._since = {
            entry: self._since.get(entry, now)
            for entry in entries
            if entry.id not in held.get(entry.resource, ())
        }

    def stale(self, now: float) -> tuple[Entry, ...]:
        """Return the entries that have been without a Pod for long."""
        return tuple(
            sorted(entry for entry, since in self._since.items() if now - since >= STALE_SECONDS)
        )


class CheckpointWatch:
    """Looks at the checkpoint at ``path`` and keeps what is stale.

    ``held`` gives the identifiers in use by resource, None while the kubelet does not tell.
    """

    def __init__(
        self,
        path: Path,
        *,
        ours: Callable[[str], bool],
        held: Callable[[], Mapping[str, Collection[str]] | None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._ours = ours
        self._held = held
        self._monotonic = monotonic
        self._entries = StaleEntries()
        self.stale: tuple[Entry, ...] = ()
        self.problem: str | None = None

    def step(self) -> None:
        """Look once; without an answer of the kubelet, or without the file, nothing changes."""
        held = self._held()
        if held is None:
            return
        try:
            with self._path.open("rb") as file:
                text = file.read(_LIMIT_BYTES).decode()
            entries = parse(text, ours=self._ours)
        except FileNotFoundError:
            entries = frozenset()
        except (OSError, ValueError) as error:
            self._tell(f"{self._path}: {error}")
            return
        self._tell(None)
        now = self._monotonic()
        self._entries.observe(entries, held, now)
        before, self.stale = self.stale, self._entries.stale(now)
        for entry in sorted(set(self.stale) - set(before)):
            log.warning(
                "The kubelet keeps a device for a container that does not exist; it is free again "
                "after the kubelet's checkpoint is removed and the kubelet restarted",
                extra=fields(id=entry.id, pod_uid=entry.pod_uid, container=entry.container),
            )

    def _tell(self, problem: str | None) -> None:
        if problem is not None and problem != self.problem:
            log.warning("The kubelet's checkpoint cannot be used", extra=fields(reason=problem))
        self.problem = problem

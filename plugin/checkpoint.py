"""Devices that the kubelet's checkpoint keeps for containers that no longer exist.

The kubelet subtracts what is in ``kubelet_internal_checkpoint`` from what it hands out. After a
crash entries can stay there although no Pod has the device any more (kubernetes/kubernetes#130145),
and the node has less than it shows. Nothing but the kubelet may change the file, so stale entries
are only told. An init container's device is in the checkpoint and not in PodResources, hence the
time that must pass. Those of Pods that ended stay in it as well until the kubelet writes it again,
with the next Allocate or device list: only a file written since then proves something.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from daemon.logs import fields

log = logging.getLogger(__name__)

#: The kubelet's file in its directory of device plugins.
FILE_NAME = "kubelet_internal_checkpoint"

#: How long an entry must have been without a Pod.
STALE_SECONDS = 120.0
#: After this time the kubelet itself has noticed that an entry's Pod is gone.
SETTLED_SECONDS = 30.0
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unlisted:
    """Since when an entry has had no Pod, and which file there was when that was settled."""

    since: float
    written: int | None = None


class StaleEntries:
    """Remembers since when each entry has been without a Pod."""

    def __init__(self) -> None:
        self._unlisted: dict[Entry, _Unlisted] = {}
        self._written = 0

    def observe(
        self,
        entries: Iterable[Entry],
        held: Mapping[str, Collection[str]],
        now: float,
        *,
        written: int,
    ) -> None:
        """Take one look at the checkpoint and at what Pods hold, by resource.

        ``written`` is another number for each writing of the file.
        """
        self._written = written
        self._unlisted = {
            entry: self._looked_at(entry, now)
            for entry in entries
            if entry.id not in held.get(entry.resource, ())
        }

    def forget(self) -> None:
        """Start over: a kubelet that starts writes what it has read, before it knows its Pods."""
        self._unlisted = {}

    def stale(self, now: float) -> tuple[Entry, ...]:
        """Return the entries that were written again although they had no Pod for long."""
        return tuple(
            sorted(
                entry
                for entry, one in self._unlisted.items()
                if now - one.since >= STALE_SECONDS and one.written not in (None, self._written)
            )
        )

    def _looked_at(self, entry: Entry, now: float) -> _Unlisted:
        one = self._unlisted.get(entry, _Unlisted(since=now))
        if one.written is None and now - one.since >= SETTLED_SECONDS:
            return replace(one, written=self._written)
        return one


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
        self._forget = threading.Event()
        self.stale: tuple[Entry, ...] = ()
        self.problem: str | None = None

    def kubelet_started(self) -> None:
        """Give a kubelet that has just started the time to know its Pods."""
        self._forget.set()

    def step(self) -> None:
        """Look once; without an answer of the kubelet, or without the file, nothing changes."""
        held = self._held()
        if held is None:
            return
        try:
            with self._path.open("rb") as file:
                written = os.fstat(file.fileno()).st_mtime_ns
                text = file.read(_LIMIT_BYTES).decode()
            entries = parse(text, ours=self._ours)
        except FileNotFoundError:
            entries, written = frozenset(), 0
        except (OSError, ValueError) as error:
            self._tell(f"{self._path}: {error}")
            return
        self._tell(None)
        if self._forget.is_set():
            self._forget.clear()
            self._entries.forget()
        now = self._monotonic()
        self._entries.observe(entries, held, now, written=written)
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

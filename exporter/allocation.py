"""Which Pods hold which devices, asked of the kubelet every few seconds."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from exporter.accounting import Account, Holders, Pod
from exporter.board import BoardWatch
from exporter.failures import Failures
from exporter.succession import Succession
from kubelet.podresources import PodDevices
from npu import ids
from npu.names import ALL_DRA_DRIVERS

PERIOD_SECONDS = 5.0
#: Below :data:`PERIOD_SECONDS`, so that a mute kubelet does not stretch the period.
LIST_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Holder:
    """A container that holds a device, whole or by slots."""

    device: str
    namespace: str
    pod: str
    container: str
    resource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The newest answer: ``holders`` is None where it is not known.

    ``error`` is why the kubelet did not tell; both None means that it was not asked.
    """

    holders: tuple[Holder, ...] | None = None
    error: Exception | None = None


class PodLister(Protocol):
    """The part of the PodResources client that is used here; raises PodResourcesError."""

    def list(self, timeout_seconds: float) -> Sequence[PodDevices]:
        """Return what all containers of the node hold."""
        ...


def holders_of(entries: Iterable[PodDevices], prefixes: Sequence[str]) -> tuple[Holder, ...]:
    """Return the holders of devices under resource names that begin with one of ``prefixes``.

    Devices of claims count where one of our drivers prepared them; its name stands for a resource.
    Slots are folded into their device; identifiers of another grammar are not ours.
    """
    found: set[Holder] = set()
    for entry in entries:
        claimed = entry.dynamic and entry.resource in ALL_DRA_DRIVERS
        if not claimed and not entry.resource.startswith(tuple(prefixes)):
            continue
        for identifier in entry.device_ids:
            try:
                device = ids.device_of(identifier)
            except ValueError:
                continue
            found.add(
                Holder(
                    device=device,
                    namespace=entry.namespace,
                    pod=entry.pod,
                    container=entry.container,
                    resource=entry.resource,
                )
            )
    return tuple(sorted(found))


def pods_by_device(holders: Iterable[Holder]) -> dict[str, tuple[Pod, ...]]:
    """Return the Pods that hold each device, each Pod once however many containers it has."""
    found: dict[str, set[Pod]] = {}
    for holder in holders:
        pod = Pod(namespace=holder.namespace, name=holder.pod)
        found.setdefault(holder.device, set()).add(pod)
    return {device: tuple(sorted(pods)) for device, pods in found.items()}


class AllocationWatch:
    """Keeps the newest allocation; asks nothing while the board has no NPU.

    ``lister`` is None where no kubelet is to be asked.
    """

    def __init__(
        self,
        lister: PodLister | None,
        watch: BoardWatch,
        account: Account,
        failures: Failures,
        *,
        prefixes: Sequence[str],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lister = lister
        self._watch = watch
        self._account = account
        self._failures = failures
        self._prefixes = tuple(prefixes)
        self._monotonic = monotonic
        self._succession = Succession()
        self._pods: Holders = None
        self.current = Allocation()

    def step(self) -> None:
        """Ask the kubelet."""
        board = self._watch.current
        if self._lister is None or board is None or not board.inventory.npus:
            self.current, self._pods = Allocation(), None
            return
        try:
            entries = self._lister.list(LIST_SECONDS)
        except Exception as error:  # noqa: BLE001 - shown by the allocation collector
            self.current, self._pods = Allocation(error=error), None
            self._failures.report("allocation", [error])
            return
        holders = holders_of(self._succession.living(entries), self._prefixes)
        pods = pods_by_device(holders)
        self._account.hold(pods, self._monotonic())
        self.current, self._pods = Allocation(holders=holders), pods
        self._failures.report("allocation", [])

    def pods(self) -> Holders:
        """Return the Pods that hold each device now, None where that is not known."""
        return self._pods

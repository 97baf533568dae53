"""The publishing loop: reads the plugins of mode ``dra`` and keeps their ResourceSlices right.

The kubelet deletes the slices of its node when it starts, and those of a driver that stays away.
Neither comes back by itself, so a slice is missing until this loop sees a registered driver without
one. A node that does not answer keeps what it has: its kubelet takes a dead driver's slice away.
One that a device plugin serves by now loses it at once: the same NPU would be offered twice.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from daemon.logs import fields
from thermal.dra.objects import Objects, Write
from thermal.dra.offers import NodeOffer
from thermal.dra.pools import pool_writes
from thermal.dra.runtime import knows_cdi
from thermal.dra.slices import SliceRecord
from thermal.judging import Leadership
from thermal.objects import NodeRecord, PodRecord
from thermal.pacing import Pacer
from thermal.source import Failure, Target

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 10.0
#: A node whose slice is missing is looked at more often: its driver may just be registering.
MISSING_SECONDS = 3.0
#: How long a node is without a plugin of this mode before its slices are taken away.
GONE_SECONDS = 60.0
#: How long a slice that was deleted may be in the cache, or one that cannot be is left alone.
_DELETED_SECONDS = 30.0
_HURRIED_NODES = 100


class Pages(Protocol):
    """Something that reads plugin pages."""

    def read(self, targets: list[Target]) -> Mapping[str, NodeOffer | Failure]:
        """Return the results that are there, by node; those of slow ones come with a later call."""
        ...


class View(Protocol):
    """What is known of the cluster, from memory."""

    @property
    def synced(self) -> bool:
        """Whether everything was read once."""
        ...

    def nodes(self) -> dict[str, NodeRecord]:
        """Return all Nodes by name."""
        ...

    def plugins(self) -> dict[str, PodRecord]:
        """Return the plugin Pods of this mode by name."""
        ...

    def counted(self) -> frozenset[str]:
        """Return the nodes that a plugin of the other mode serves, and none of this one."""
        ...

    def slices(self) -> dict[str, SliceRecord]:
        """Return our ResourceSlices by name."""
        ...


@dataclass(slots=True)
class _Memory:
    """What is remembered within one term of leadership."""

    pacer: Pacer = field(default_factory=Pacer)
    due_at: dict[str, float] = field(default_factory=dict)
    read_at: dict[str, float] = field(default_factory=dict)
    offers: dict[str, NodeOffer] = field(default_factory=dict)
    unplugged_since: dict[str, float] = field(default_factory=dict)
    deleted: dict[str, tuple[str, float]] = field(default_factory=dict)
    left_out: dict[str, dict[str, int]] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    without_cdi: set[str] = field(default_factory=set)

    def forget(self, *, nodes: Collection[str], slices: Collection[str]) -> None:
        """Keep what is about these nodes and slices: names come and go for as long as this runs."""
        for of_nodes in (self.due_at, self.read_at, self.offers, self.left_out, self.unread):
            _keep(of_nodes, nodes)
        for of_slices in (self.unplugged_since, self.deleted):
            _keep(of_slices, slices)


def _keep(memory: dict[str, Any], names: Collection[str]) -> None:
    for name in [name for name in memory if name not in names]:
        del memory[name]


class Publisher:
    """Publishes while this replica leads; :meth:`step` is one turn of its loop."""

    def __init__(
        self,
        objects: Objects,
        *,
        view: View,
        pages: Pages,
        leadership: Leadership,
        release: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._view = view
        self._pages = pages
        self._leadership = leadership
        self._release = release
        self._monotonic = monotonic
        self._memory = _Memory()
        self._term: int | None = None
        self._objects = objects

    @property
    def writes(self) -> Mapping[str, int]:
        """What was written, by operation."""
        return self._objects.writes

    def step(self) -> None:
        """Read the plugins that are due, then write as many slices as the pace allows."""
        term = self._leadership.term
        if term is None or not self._view.synced:
            return
        if term != self._term:
            self._term, self._memory = term, _Memory()
            self._objects.forget()
        now = self._monotonic()
        nodes, slices = self._view.nodes(), self._view.slices()
        plugins = self._serving(nodes)
        self._read(plugins, slices, now)
        if not self._objects.ready(now):
            return
        pacer = self._memory.pacer
        for pool in self._differences(nodes, plugins, now):
            # A pool is of no use until all of it is written: the pace is kept by what comes after.
            if self._leadership.term != term or not pacer.ready(now):
                return
            pacer.spend(len(pool))
            done = all(self._apply(write, now) for write in pool)
            if not done and not self._objects.ready(now):
                return

    def _serving(self, nodes: Mapping[str, NodeRecord]) -> dict[str, str]:
        """Return where plugins answer, by node; one whose devices reach no container has none."""
        without, found = self._memory.without_cdi, {}
        for pod in self._view.plugins().values():
            node = nodes.get(pod.node)
            if not pod.running or pod.address is None or node is None:
                continue
            if knows_cdi(node.container_runtime):
                found[node.name] = pod.address
                without.discard(node.name)
            elif node.name not in without:
                without.add(node.name)
                log.warning(
                    "The devices of a node are not published: its container runtime knows no CDI, "
                    "and Pods would run without them",
                    extra=fields(node=node.name, runtime=node.container_runtime),
                )
        without &= nodes.keys()
        return found

    def _read(
        self, plugins: Mapping[str, str], slices: Mapping[str, SliceRecord], now: float
    ) -> None:
        """Read the pages that are due."""
        memory = self._memory
        present = {(item.node, item.driver) for item in slices.values()}
        published = {item.node for item in slices.values()}
        memory.forget(nodes=plugins.keys(), slices=slices.keys())
        targets = [
            Target(node=node, address=address)
            for node, address in plugins.items()
            if now >= memory.due_at.get(node, now)
        ]
        unpublished = len(plugins.keys() - published)
        for node, result in self._pages.read(targets).items():
            if node not in plugins:
                # It was slow to answer, and is gone by now.
                continue
            if isinstance(result, Failure) or result.pool != node:
                # What it said before is no reason to create anything now.
                memory.offers.pop(node, None)
                memory.due_at[node] = now + MISSING_SECONDS
                if node not in published:
                    self._tell_unread(node, result)
                continue
            memory.unread.pop(node, None)
            memory.offers[node] = result
            memory.read_at[node] = now
            self._tell_left_out(node, result)
            complete = all((node, driver.name) in present for driver in result.drivers)
            # On a fleet that is published for the first time, the pace is what takes time.
            hurry = not complete and unpublished <= _HURRIED_NODES
            memory.due_at[node] = now + (MISSING_SECONDS if hurry else INTERVAL_SECONDS)

    def _tell_unread(self, node: str, result: NodeOffer | Failure) -> None:
        """Say why a node offers nothing although a plugin runs there, once for each reason."""
        reason: str = result.reason if isinstance(result, Failure) else "pool"
        detail = (
            result.detail
            if isinstance(result, Failure)
            else f"the page is of the node {result.pool[:253]!r}"
        )
        if self._memory.unread.get(node) != reason:
            self._memory.unread[node] = reason
            log.warning(
                "The devices of a node are not published: its plugin's page cannot be read",
                extra=fields(node=node, reason=reason, detail=detail),
            )

    def _tell_left_out(self, node: str, offer: NodeOffer) -> None:
        """Say which devices nobody can get, once."""
        told = self._memory.left_out.setdefault(node, {})
        for driver in offer.drivers:
            if driver.left_out != told.get(driver.name, 0):
                told[driver.name] = driver.left_out
                log.warning(
                    "No more devices of a driver are published; give NPUs fewer slots",
                    extra=fields(
                        node=node,
                        driver=driver.name,
                        published=len(driver.devices),
                        left_out=driver.left_out,
                    ),
                )

    def _differences(
        self,
        nodes: Mapping[str, NodeRecord],
        plugins: Mapping[str, str],
        now: float,
    ) -> list[tuple[Write, ...]]:
        """Return what differs, pool by pool: first what is offered twice, last what by nobody."""
        slices, counted = self._view.slices(), self._view.counted()
        moved = [item for item in slices.values() if item.node in counted]
        pools: dict[tuple[str, str], list[SliceRecord]] = {}
        for item in slices.values():
            pools.setdefault((item.node, item.driver), []).append(item)
        found = list(self._deletions(moved, now))
        for node, offer in self._memory.offers.items():
            # Wiped since the page was read, and its driver may be gone with it. The kubelet takes
            # longer than this before it wipes.
            stale = now - self._memory.read_at[node] > INTERVAL_SECONDS
            for driver in offer.drivers:
                present = pools.get((node, driver.name), ())
                writes = pool_writes(nodes[node], present, driver, release=self._release)
                if writes and not (stale and any(w.operation == "create" for w in writes)):
                    found.append(writes)
        over = [item for item in slices.values() if self._is_over(item, nodes, plugins, now)]
        found.extend(self._deletions((item for item in over if item.node not in counted), now))
        return found

    def _deletions(self, items: Iterable[SliceRecord], now: float) -> Iterator[tuple[Write, ...]]:
        for item in items:
            version, until = self._memory.deleted.get(item.name, ("", now))
            if version != item.resource_version or now >= until:
                yield (Write(operation="delete", name=item.name, node=item.node, body={}),)

    def _is_over(
        self,
        item: SliceRecord,
        nodes: Mapping[str, NodeRecord],
        plugins: Mapping[str, str],
        now: float,
    ) -> bool:
        """Tell whether a slice has nobody behind it; those of deleted Nodes go with them."""
        offer = self._memory.offers.get(item.node)
        if offer is not None:
            return all(driver.name != item.driver for driver in offer.drivers)
        # A node that is not Ready may be without power: its claims wait for it.
        unplugged = item.node not in plugins and item.node in nodes and nodes[item.node].ready
        if not unplugged:
            self._memory.unplugged_since.pop(item.name, None)
            return False
        return now - self._memory.unplugged_since.setdefault(item.name, now) >= GONE_SECONDS

    def _apply(self, write: Write, now: float) -> bool:
        """Write; False where what belongs to it should not be tried now."""
        memory = self._memory
        outcome = self._objects.apply(write, now)
        if outcome == "away":
            return False
        present = self._view.slices().get(write.name)
        if write.operation == "delete" and present is not None:
            memory.deleted[write.name] = present.resource_version, now + _DELETED_SECONDS
        if outcome == "behind":
            # The next turn knows better.
            memory.due_at[write.node] = now
            return False
        # Written is not yet seen: the cache must not make it be written twice. What was refused is
        # not tried again at once.
        memory.offers.pop(write.node, None)
        memory.due_at[write.node] = now + (
            MISSING_SECONDS if outcome == "written" else INTERVAL_SECONDS
        )
        return outcome == "written"

"""Carries decisions out on Nodes: taint, condition, record, labels, Event.

Every write starts with a fresh read and carries its resource version, so that taints of other
writers survive whatever the cache believes. A conflict is tried again a few times, with jitter;
anything else is the caller's matter.
"""

import itertools
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from daemon.logs import fields
from thermal import wallclock
from thermal.api import MERGE_PATCH, NODES, STRATEGIC_PATCH, Api
from thermal.desired import Desired, node_patch, status_patch
from thermal.errors import ApiError, ConflictError
from thermal.events import Announcement, about_node, announcement, event, namespace_of
from thermal.journal import Journal
from thermal.objects import Json, NodeRecord, node_record

log = logging.getLogger(__name__)

ATTEMPTS = 5
_JITTER_SECONDS = 0.3


class NotLeaderError(Exception):
    """Leadership ended before a write; the next leader will do it."""


#: How a Node should look, given how it is.
Desire = Callable[[NodeRecord], Desired]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a call changed: names of parts, and the Node afterwards."""

    parts: tuple[str, ...]
    node: NodeRecord


class NodeActuator:
    """Makes one Node look as desired. Used by one thread; :meth:`announce` by any.

    ``allowed`` is asked right before every write. ``failed`` hears of Events that were lost.
    ``journal`` is where callers note what they did. ``patches`` counts attempts to write a Node,
    also those that were refused: each is work for the API server.
    """

    def __init__(
        self,
        api: Api,
        *,
        allowed: Callable[[], bool],
        instance: str,
        failed: Callable[[ApiError], None] = lambda _error: None,
        journal: Journal | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._api = api
        self._allowed = allowed
        self._instance = instance
        self.journal = journal or Journal()
        self._failed = failed
        self._sleep = sleep
        self._serials = itertools.count(time.time_ns())
        self.patches = 0

    def apply(
        self, name: str, desire: Desire, *, detail: str = "", condition: bool = True
    ) -> Written:
        """Read the Node, write what differs, announce a changed condition.

        Without ``condition`` that one is left for later. Raises NotLeaderError, or ApiError where
        the Node cannot be brought into its state.
        """
        node, desired, parts = self._write_node(name, desire)
        changed: tuple[str, ...] = ()
        if condition:
            node, changed = self._write_status(node, desired, detail)
        return Written(parts=(*parts, *changed), node=node)

    def _write_node(self, name: str, desire: Desire) -> tuple[NodeRecord, Desired, tuple[str, ...]]:
        path = f"{NODES}/{name}"
        for attempt in range(ATTEMPTS):
            node = node_record(self._api.get(path))
            desired = desire(node)
            body = node_patch(node, desired)
            if body is None:
                return node, desired, ()
            try:
                written = node_record(self._patch(path, body, kind=MERGE_PATCH))
            except ConflictError:
                if attempt == ATTEMPTS - 1:
                    raise
                self._sleep(random.uniform(0.0, _JITTER_SECONDS))  # noqa: S311 (spreads retries)
                continue
            if node_patch(written, desire(written)) is not None:
                log.warning(
                    "the API server stored something else than was written",
                    extra=fields(node=name, asked=sorted(_parts(body))),
                )
            return written, desired, tuple(sorted(_parts(body)))
        raise AssertionError("unreachable")

    def _write_status(
        self, node: NodeRecord, desired: Desired, detail: str
    ) -> tuple[NodeRecord, tuple[str, ...]]:
        body = status_patch(node, desired.condition, wallclock.now())
        if body is None:
            return node, ()
        path = f"{NODES}/{node.name}/status"
        written = node_record(self._patch(path, body, kind=STRATEGIC_PATCH))
        if desired.condition is not None:
            news = announcement(node.condition, desired.condition, detail=detail)
            if news is not None:
                self.announce(news, about_node(node))
        return written, ("condition",)

    def announce(self, news: Announcement, regarding: Json) -> None:
        """Create an Event; losing it is counted and raises nothing."""
        body = event(
            news,
            regarding,
            instance=self._instance,
            now=wallclock.now_micro(),
            serial=next(self._serials),
        )
        try:
            namespace = namespace_of(regarding)
            self._api.create(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", body)
        except ApiError as error:
            # An Event is news, not state: losing one must not keep a node from being written.
            self._failed(error)
            log.warning("event lost", extra=fields(reason=body["reason"], error=error))

    def _patch(self, path: str, body: Json, *, kind: str) -> Json:
        if not self._allowed():
            raise NotLeaderError
        self.patches += 1
        return self._api.patch(path, body, kind=kind)


def _parts(body: Json) -> set[str]:
    metadata = body["metadata"].keys() - {"resourceVersion"}
    return set(metadata) | set(body.get("spec", ()))

"""Deletes Pods that failed at admission because their node had no NPU yet: ghosts of a reboot.

After a power cut the kubelet admits the Pods of its node again before the device plugin runs; those
with an NPU fail for good: ``UnexpectedAdmissionError``, of the kubelet's device manager
(``pkg/kubelet/cm/devicemanager/manager.go``). Controllers make new ones, and the failed ones stay
until the cluster has thousands of them.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from daemon.logs import fields
from thermal.api import Listing, Query
from thermal.errors import ApiError, ConflictError, NotFoundError
from thermal.objects import Json

log = logging.getLogger(__name__)

PODS: Final = "/api/v1/pods"
REASON: Final = "UnexpectedAdmissionError"


class Pods(Protocol):
    """Reading and deleting. Every call raises ApiError."""

    def list(self, path: str, query: Query | None = None) -> Listing:
        """Read a whole collection."""
        ...

    def delete(self, path: str, *, uid: str, resource_version: str) -> None:
        """Delete an object if it is still this one in this version."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How many Pods were deleted, and how many could not be."""

    deleted: int
    failed: int


def ghosts(
    pods: Sequence[Json], resources: Sequence[str], *, without_controller: bool
) -> Iterator[Json]:
    """Yield the ghosts among ``pods``: failed for want of one of ``resources`` (prefixes).

    Those that no controller replaces are somebody's only record of what was asked for, and yielded
    only ``without_controller``.
    """
    for pod in pods:
        status = pod.get("status") or {}
        message = str(status.get("message") or "")
        owners = (pod.get("metadata") or {}).get("ownerReferences") or ()
        replaced = any(owner.get("controller") for owner in owners)
        if (
            status.get("phase") == "Failed"
            and status.get("reason") == REASON
            and any(name in message for name in _wanted(pod) if name.startswith(tuple(resources)))
            and (replaced or without_controller)
        ):
            yield pod


def _wanted(pod: Json) -> Iterator[str]:
    """Yield the resources that a Pod's containers ask for."""
    spec = pod.get("spec") or {}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        yield from ((container.get("resources") or {}).get("limits") or {})


def sweep(api: Pods, resources: Sequence[str], *, without_controller: bool) -> Report:
    """Delete all ghosts of the cluster. Raises ApiError where Pods cannot be listed."""
    deleted = failed = 0
    found = api.list(PODS, {"fieldSelector": "status.phase=Failed"}).items
    for pod in ghosts(found, resources, without_controller=without_controller):
        meta = pod["metadata"]
        where = fields(namespace=meta["namespace"], pod=meta["name"])
        try:
            api.delete(
                f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}",
                uid=meta["uid"],
                resource_version=meta["resourceVersion"],
            )
        except (NotFoundError, ConflictError):
            # Gone or changed since it was read: judged again the next time.
            continue
        except ApiError as error:
            failed += 1
            log.error("ghost not deleted: %s", error, extra=where)  # noqa: TRY400 (one line)
        else:
            deleted += 1
            log.info("ghost deleted", extra=where)
    return Report(deleted=deleted, failed=failed)

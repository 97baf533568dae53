"""Takes away everything the guard ever wrote on Nodes.

Safe to run again, and safe beside other writers: foreign taints, labels, annotations and conditions
stay. One node that fails does not keep the others from being cleaned.
"""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from daemon.logs import fields
from thermal import wallclock
from thermal.api import NODES, STRATEGIC_PATCH, Api
from thermal.desired import removal_patch, status_patch
from thermal.dra.rules import RULES
from thermal.dra.slices import LABEL, SLICES
from thermal.errors import ApiError, ConflictError, NotFoundError
from thermal.objects import Json, node_record
from thermal.writer import ATTEMPTS

log = logging.getLogger(__name__)

_JITTER_SECONDS = 0.3
_POLL_SECONDS = 2.0
#: Prefixes of the extended resources that the device plugin registers.
_RESOURCES = ("rockchip.com/npu", "huawei.com/Ascend")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Names of nodes and other objects by what happened to them."""

    changed: tuple[str, ...]
    failed: tuple[str, ...]

    def __add__(self, other: "Report") -> "Report":
        """Return both together."""
        return Report(changed=self.changed + other.changed, failed=self.failed + other.failed)


def wait_for_pods(
    api: Api,
    *,
    namespace: str,
    selector: str,
    timeout_seconds: float,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> bool:
    """Wait until no Pod matches ``selector``: a live guard would put back what is taken away.

    Return False after ``timeout_seconds``.
    """
    until = monotonic() + timeout_seconds
    while True:
        try:
            pods = api.list(f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": selector})
            left = len(pods.items)
        except ApiError as error:
            log.warning("pods cannot be listed", extra=fields(error=error))
        else:
            if not left:
                return True
            log.info("waiting for pods to end", extra=fields(selector=selector, pods=left))
        if monotonic() >= until:
            return False
        sleep(_POLL_SECONDS)


def clean(
    api: Api, *, capacity: bool = False, sleep: Callable[[float], object] = time.sleep
) -> Report:
    """Clean all nodes; with ``capacity`` also the counts of NPUs that the kubelet left at zero.

    Raises ApiError where the nodes cannot be listed.
    """
    changed: list[str] = []
    failed: list[str] = []
    for listed in api.list(NODES).items:
        name = listed["metadata"]["name"]
        if not _has_work(listed, capacity=capacity):
            continue
        try:
            if _clean_node(api, name, capacity=capacity, sleep=sleep):
                changed.append(name)
                log.info("node cleaned", extra=fields(node=name))
        except NotFoundError:
            continue
        except ApiError as error:
            failed.append(name)
            log.error("node not cleaned", extra=fields(node=name, error=error))  # noqa: TRY400
    return Report(changed=tuple(changed), failed=tuple(failed))


def clean_claims(api: Api, *, release: str) -> Report:
    """Delete ResourceSlices and DeviceTaintRules of ``release``, where the cluster has any.

    Raises ApiError where they cannot be listed.
    """
    changed: list[str] = []
    failed: list[str] = []
    for collection in (RULES, SLICES):
        try:
            listed = api.list(collection, {"labelSelector": f"{LABEL}={release}"}).items
        except NotFoundError:
            continue
        for item in listed:
            name = item["metadata"]["name"]
            try:
                api.delete(f"{collection}/{name}")
            except NotFoundError:
                continue
            except ApiError as error:
                failed.append(name)
                log.error("not deleted", extra=fields(name=name, error=error))  # noqa: TRY400
            else:
                changed.append(name)
    return Report(changed=tuple(changed), failed=tuple(failed))


def _has_work(node: Json, *, capacity: bool) -> bool:
    record = node_record(node)
    return (
        removal_patch(record) is not None
        or record.condition is not None
        or (capacity and bool(_stale_resources(node)))
    )


def _clean_node(api: Api, name: str, *, capacity: bool, sleep: Callable[[float], object]) -> bool:
    path = f"{NODES}/{name}"
    changed = False
    for attempt in range(ATTEMPTS):
        node = api.get(path)
        body = removal_patch(node_record(node))
        if body is None:
            break
        try:
            node = api.patch(path, body)
        except ConflictError:
            if attempt == ATTEMPTS - 1:
                raise
            sleep(random.uniform(0.0, _JITTER_SECONDS))  # noqa: S311 (spreads retries)
            continue
        changed = True
        break
    status = status_patch(node_record(node), None, wallclock.now())
    if status is not None:
        api.patch(f"{path}/status", status, kind=STRATEGIC_PATCH)
        changed = True
    stale = _stale_resources(node) if capacity else ()
    if stale:
        gone: Json = dict.fromkeys(stale)
        api.patch(f"{path}/status", {"status": {"capacity": gone, "allocatable": gone}})
        changed = True
    return changed


def _stale_resources(node: Json) -> tuple[str, ...]:
    """Return NPU resources whose count is zero: the kubelet keeps the entry for ever.

    A count above zero belongs to a device plugin that runs, or just ended.
    """
    capacity = (node.get("status") or {}).get("capacity") or {}
    return tuple(
        name
        for name, count in sorted(capacity.items())
        if name.startswith(_RESOURCES) and str(count) == "0"
    )

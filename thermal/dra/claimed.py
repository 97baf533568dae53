"""Which NPUs a Pod was given by claims that it names itself.

A Pod that asks by resource name says how many in its limits, in both modes. One that brings a
ResourceClaim says so only in the claim, which is read when it matters: while a node is emptied.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from daemon.logs import fields
from npu.names import ALL_DRA_DRIVERS
from thermal.api import Api
from thermal.dra.slices import SliceRecord
from thermal.errors import ForbiddenError, NotFoundError
from thermal.objects import Json

log = logging.getLogger(__name__)


class ClaimedDevices:
    """Counts the devices of a Pod's claims by resource. Raises ApiError where they are not told."""

    def __init__(self, api: Api, slices: Callable[[], Mapping[str, SliceRecord]]) -> None:
        self._api = api
        self._slices = slices
        self._refused = False

    def __call__(self, pod: Json) -> Mapping[str, int]:
        """Return how many devices of each resource a Pod was given by its own claims."""
        namespace = str((pod.get("metadata") or {}).get("namespace", ""))
        node = str((pod.get("spec") or {}).get("nodeName", ""))
        found: Counter[str] = Counter()
        for name in claim_names(pod):
            path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"
            try:
                claim = self._api.get(path)
            except NotFoundError:
                continue
            except ForbiddenError as error:
                # Pods whose limits tell must leave all the same.
                if not self._refused:
                    log.error(  # noqa: TRY400 (one line)
                        "claims may not be read: Pods with a claim of their own are not evicted",
                        extra=fields(error=error),
                    )
                self._refused = True
                continue
            for driver, device in given(claim, pool=node):
                found[self._resource(node, driver, device)] += 1
        return found

    def _resource(self, node: str, driver: str, device: str) -> str:
        """Return the resource of a device; a wiped slice leaves it without a name."""
        for item in self._slices().values():
            if (item.node, item.driver) == (node, driver) and device in item.resources:
                return item.resources[device]
        return ""


def claim_names(pod: Json) -> list[str]:
    """Return the claims of a Pod: those it names, and those that were made for it."""
    made = {
        str(status.get("name", "")): status.get("resourceClaimName")
        for status in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    found = []
    for entry in (pod.get("spec") or {}).get("resourceClaims") or ():
        name = entry.get("resourceClaimName") or made.get(str(entry.get("name", "")))
        if name:
            found.append(str(name))
    return found


def given(claim: Json, *, pool: str) -> Iterator[tuple[str, str]]:
    """Yield driver and device for everything of ours on ``pool`` that a claim was given."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for item in (allocation.get("devices") or {}).get("results") or ():
        driver = str(item.get("driver", ""))
        if driver in ALL_DRA_DRIVERS and item.get("pool") == pool:
            yield driver, str(item.get("device", ""))

"""Proves at start that the admission policy fences the guard's own token.

A dry run of a write the guard must never make: adding a foreign taint. Only a refusal by the policy
counts; one by RBAC would say that the guard cannot work at all, and success that the cluster relies
on this program being honest.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Literal

from daemon.logs import fields
from thermal.api import NODES, Api
from thermal.errors import ApiError, ForbiddenError

log = logging.getLogger(__name__)

_FOREIGN_TAINT = {"key": "npu-platform.io/self-test", "effect": "PreferNoSchedule"}
_AFTER_SECONDS = 20.0
_EVERY_SECONDS = 600.0
_RETRY_SECONDS = 60.0
_POLICY = "ValidatingAdmissionPolicy"

Outcome = Literal["enforced", "missing", "unknown"]


def probe(api: Api, node: str) -> Outcome:
    """Try the forbidden write on ``node``; nothing is stored whatever the outcome."""
    path = f"{NODES}/{node}"
    try:
        current = api.get(path)
        taints = list((current.get("spec") or {}).get("taints") or ())
        version = current["metadata"]["resourceVersion"]
        api.patch(
            path,
            {
                "metadata": {"resourceVersion": version},
                "spec": {"taints": [*taints, _FOREIGN_TAINT]},
            },
            dry_run=True,
        )
    except ForbiddenError as error:
        if _POLICY in error.detail:
            log.info("the admission policy fences the guard's token", extra=fields(node=node))
            return "enforced"
        log.warning("the self-test was refused by something else", extra=fields(error=error))
        return "unknown"
    except ApiError as error:
        log.warning("the self-test could not be made", extra=fields(error=error))
        return "unknown"
    log.warning(
        "no admission policy fences the guard's token: whoever steals it can taint, label and"
        " cordon every node; Kubernetes 1.30 and the chart's policy close this",
        extra=fields(node=node),
    )
    return "missing"


class SelfTest:
    """Repeats the self-test of the admission policy while this replica leads."""

    def __init__(
        self,
        api: Api,
        *,
        nodes: Callable[[], Mapping[str, object]],
        leads: Callable[[], bool],
        tell: Callable[[Outcome], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._nodes = nodes
        self._leads = leads
        self._tell = tell
        self._monotonic = monotonic
        self._led_since: float | None = None
        self._next_at = 0.0

    def step(self) -> None:
        """Make the test when it is due; a policy needs some seconds to become active."""
        now = self._monotonic()
        if not self._leads():
            self._led_since = None
            return
        if self._led_since is None:
            self._led_since = now
        nodes = sorted(self._nodes())
        if not nodes or now < max(self._next_at, self._led_since + _AFTER_SECONDS):
            return
        outcome = probe(self._api, nodes[0])
        self._tell(outcome)
        self._next_at = now + (_EVERY_SECONDS if outcome == "enforced" else _RETRY_SECONDS)

"""What a person did to our taints by hand, and for how long that is respected."""

import logging
from dataclasses import dataclass, field

from daemon.logs import fields
from npu.heat import Heat
from thermal import record, taints, wallclock
from thermal.names import ANNOTATION_STATE
from thermal.objects import NodeRecord
from thermal.policy import Decision

log = logging.getLogger(__name__)

#: States of which no person is asked.
URGENT = frozenset({Heat.CRITICAL, Heat.EMERGENCY})


@dataclass(slots=True, kw_only=True)
class Manual:
    """Remembers nodes from which a person took our taint; times are monotonic."""

    pause_seconds: float
    _until: dict[str, float] = field(default_factory=dict)

    def paused(self, node: NodeRecord, decision: Decision, now: float) -> bool:
        """Tell whether the taints stay as a person left them.

        He asked for it until some time, or took our taint away, and we leave it so for a while: the
        record and the taint are written together, so a record without its taint is a person's
        doing. Critical heat overrides both.
        """
        if decision.state not in URGENT and held(node):
            return True
        if decision.stop is None or decision.state in URGENT:
            self._until.pop(node.name, None)
            return False
        if _was_removed(node) and node.name not in self._until and self.pause_seconds:
            self._until[node.name] = now + self.pause_seconds
            log.warning(
                "taint was removed by somebody else; not set again for a while",
                extra=fields(node=node.name, seconds=self.pause_seconds),
            )
        if now < self._until.get(node.name, now):
            return True
        self._until.pop(node.name, None)
        return False


def held(node: NodeRecord) -> bool:
    """Tell whether a person asked that the node's taints stay as they are until some time."""
    return node.hold_until is not None and wallclock.moment() < node.hold_until


def _was_removed(node: NodeRecord) -> bool:
    written = record.decode(node.annotations.get(ANNOTATION_STATE))
    return (
        written is not None
        and written.applied is not None
        and taints.applied_effect(node.taints) is None
    )

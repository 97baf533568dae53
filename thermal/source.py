"""Where readings come from, as the judging loop sees it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from thermal.readings import NodeSample

FailureReason = Literal["no_exporter", "connect", "timeout", "too_large", "http", "stale"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An exporter Pod; the node is what the API server says, never what the page says.

    ``warm`` tells that its node is at least warm, so that a fresh reading matters.
    """

    node: str
    address: str
    warm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """No page, and why; ``stale`` is one that is too old."""

    reason: FailureReason
    detail: str = ""


Result = NodeSample | Failure


class Source(Protocol):
    """Something that reads exporters."""

    def read(self, targets: Sequence[Target]) -> Mapping[str, Result]:
        """Return one result per target, by node; never raises for what a node does."""
        ...

"""What the kubelet has given to containers of this node."""

import logging
import time
from collections import Counter
from collections.abc import Callable

from daemon.logs import fields
from kubelet.podresources import PodDevices, PodResourcesError

log = logging.getLogger(__name__)

PERIOD_SECONDS = 1.0
_TIMEOUT_SECONDS = 2.0
#: How long the last answer counts while the kubelet does not answer; a restart takes seconds.
_KEEP_SECONDS = 30.0

ListDevices = Callable[[float], tuple[PodDevices, ...]]


class Allocation:
    """Polls the kubelet; ``errors`` counts failures by reason."""

    def __init__(
        self, list_devices: ListDevices, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._list = list_devices
        self._monotonic = monotonic
        self._held: tuple[PodDevices, ...] = ()
        self._answered_at: float | None = None
        self.errors: Counter[str] = Counter()
        self._failing: str | None = None

    def step(self) -> None:
        """Ask once."""
        try:
            self._held = self._list(_TIMEOUT_SECONDS)
        except PodResourcesError as error:
            self.errors[error.reason] += 1
            if self._failing != error.reason:
                self._failing = error.reason
                log.warning("allocations unknown", extra=fields(error=error))
            return
        self._answered_at = self._monotonic()
        if self._failing is not None:
            self._failing = None
            log.info("allocations known again")

    def held(self) -> tuple[PodDevices, ...]:
        """Return what containers hold; nothing while the kubelet has not answered for long."""
        if self._answered_at is None or self._monotonic() - self._answered_at > _KEEP_SECONDS:
            return ()
        return self._held

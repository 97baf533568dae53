"""Looks at the NPU's temperature and tells the workers when to run at half speed."""

import logging
import time
from collections.abc import Callable

from daemon.logs import fields
from inference import throttle
from inference.throttle import Limits, Throttle
from npu import thermal
from npu.errors import NpuError
from npu.host import Host

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0


class Heat:
    """The state by which a service slows down; zones are readable in every container with /sys."""

    def __init__(
        self,
        host: Host,
        limits: Limits,
        tell: Callable[[bool], None],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._limits = limits
        self._tell = tell
        self._monotonic = monotonic
        self._state = Throttle()
        #: The last reading; None where there is none.
        self.celsius: float | None = None

    def look(self) -> None:
        """Read the temperature and tell of a change."""
        self.celsius = self._read()
        before = self._state
        self._state = throttle.advance(before, self.celsius, self._monotonic(), self._limits)
        if self._state.active != before.active:
            log.warning(
                "half speed" if self._state.active else "full speed",
                extra=fields(celsius=self.celsius),
            )
            self._tell(self._state.active)

    def _read(self) -> float | None:
        zone = thermal.judged_zone(thermal.zones(self._host), "rockchip")
        if zone is None:
            return None
        try:
            return thermal.millicelsius(self._host, zone) / 1000
        except NpuError:
            return None

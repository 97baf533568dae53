"""What the board has, scanned again every few seconds.

A driver may be loaded late, reloaded or lost, so the inventory is a moving thing. Trip points and
the list of thermal zones hardly change and are read along with it, not at every scrape.
"""

from collections.abc import Callable
from dataclasses import dataclass

from exporter.failures import Failures
from exporter.worker import Worker
from npu import thermal
from npu.host import Host
from npu.model import Inventory, ThermalZone
from npu.names import SIMULATED_MARKER
from npu.scan import scan

PERIOD_SECONDS = 10.0
_SCAN_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One look at the board."""

    inventory: Inventory
    zones: tuple[ThermalZone, ...] = ()
    simulated: bool = False


def look(host: Host) -> Board:
    """Look at the board below ``host``."""
    return Board(
        inventory=scan(host),
        zones=thermal.zones(host),
        simulated=host.exists(SIMULATED_MARKER),
    )


class BoardWatch:
    """Keeps the last good look; ``current`` is None until there is one.

    ``error`` is why the newest look failed, None where it did not.
    """

    def __init__(self, look: Callable[[], Board], failures: Failures) -> None:
        self._worker = Worker("scan", look)
        self._failures = failures
        self.current: Board | None = None
        self.error: Exception | None = None

    def step(self) -> None:
        """Look again."""
        try:
            board = self._worker.call(_SCAN_SECONDS)
        except Exception as error:  # noqa: BLE001 - shown by the identity collector
            self.error = error
            self._failures.report("identity", [error])
            return
        self.current, self.error = board, None
        self._failures.report("identity", [])

"""The drivers this platform knows; :mod:`npu.scan` asks each of them.

Adding a driver is one module, fixture trees and one line in :data:`DRIVERS`.
"""

from typing import Final, Protocol

from npu.drivers.ascend import AscendDriver
from npu.drivers.rknpu import RknpuDriver
from npu.drivers.rocket import RocketDriver
from npu.host import Host
from npu.model import Clock, CoreLoad, Inventory, Npu


class Driver(Protocol):
    """A kernel interface through which NPUs are seen.

    Implementations hold no state, but for what a load by difference of counters needs.
    """

    name: str

    def discover(self, host: Host) -> Inventory:
        """Find this driver's NPUs; never raises for what a file contains or lacks."""
        ...

    def load(self, host: Host, npu: Npu) -> tuple[CoreLoad, ...]:
        """Read the busy share per core; empty where the interface has none, or none yet.

        Raises ReadError or ImplausibleError.
        """
        ...

    def clock(self, host: Host, npu: Npu) -> Clock:
        """Read the clock; fields are None where they cannot be read."""
        ...

    def powered(self, host: Host, npu: Npu) -> bool | None:
        """Tell whether the power domain is on, None where that cannot be read."""
        ...

    def bound(self, host: Host, npu: Npu) -> bool | None:
        """Tell whether the driver is still bound in sysfs, None where that cannot be measured."""
        ...


#: In the order in which they are asked.
DRIVERS: Final[tuple[Driver, ...]] = (RknpuDriver(), RocketDriver(), AscendDriver())

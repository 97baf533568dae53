"""The scan of a board: every driver asked, and what else a workload needs to know."""

from dataclasses import replace

from npu import library, thermal
from npu.host import Host
from npu.model import Inventory, Npu, Refused
from npu.registry import DRIVERS, Driver


def scan(host: Host, *, library_paths: tuple[str, ...] = ()) -> Inventory:
    """Find the NPUs of a board, with judged thermal zone and libraries.

    ``library_paths`` are searched before the usual directories. Never raises for what the board's
    files contain or lack.
    """
    npus: list[Npu] = []
    refused: list[Refused] = []
    zones = thermal.zones(host)
    for driver in DRIVERS:
        inventory = driver.discover(host)
        refused.extend(inventory.refused)
        for npu in inventory.npus:
            zone = None if npu.zone is not None else thermal.judged_zone(zones, npu.vendor)
            npus.append(
                replace(
                    npu,
                    zone=npu.zone if zone is None else zone.type,
                    zone_is_npu=npu.zone_is_npu if zone is None else thermal.is_npu_zone(zone),
                    libraries=library.find(host, npu.driver, library_paths),
                )
            )
    return Inventory(npus=tuple(npus), refused=tuple(refused))


def driver_of(npu: Npu) -> Driver:
    """Return the driver that found ``npu``; raises KeyError for one that no driver found."""
    for driver in DRIVERS:
        if driver.name == npu.driver:
            return driver
    raise KeyError(npu.driver)

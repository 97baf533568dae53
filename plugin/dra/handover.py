"""Keeps a node from serving one NPU both ways: as extended resource and by claims. Pure.

A node changes its mode with its profile, and Pods of the old mode may still run. The kubelet tells
about both kinds of holders; an NPU that a Pod of the other mode has is not handed out.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from kubelet.podresources import HeldClaim, PodDevices
from npu.ids import device_of
from npu.names import ALL_DRA_DRIVERS
from plugin.devices import DeviceTable


class Translator:
    """Names holders by resource, whichever way they hold; remembers those of the other mode.

    ``dra`` tells whether this node serves claims. ``table`` lists what it offers.
    """

    def __init__(
        self,
        *,
        dra: bool,
        ours: Callable[[str], bool],
        table: Callable[[], DeviceTable],
    ) -> None:
        self._dra = dra
        self._ours = ours
        self._table = table
        self.elsewhere: frozenset[str] = frozenset()
        self._claims: dict[str, tuple[HeldClaim, ...]] | None = None

    def claims(self, driver: str) -> tuple[HeldClaim, ...] | None:
        """Return the devices of a driver that containers have by claims, None while not known."""
        return None if self._claims is None else self._claims.get(driver, ())

    def __call__(self, entries: Iterable[PodDevices]) -> tuple[PodDevices, ...]:
        """Return the entries of this mode."""
        mine: list[PodDevices] = []
        others: set[str] = set()
        claims: dict[str, tuple[HeldClaim, ...]] = {}
        for entry in entries:
            if entry.claims:
                claims[entry.resource] = (*claims.get(entry.resource, ()), *entry.claims)
            if entry.dynamic and entry.resource in ALL_DRA_DRIVERS:
                if self._dra:
                    mine.extend(self._by_resource(entry))
                else:
                    others |= _devices(entry.device_ids)
            elif not entry.dynamic and self._ours(entry.resource):
                if self._dra:
                    others |= _devices(entry.device_ids)
                else:
                    mine.append(entry)
        self.elsewhere, self._claims = frozenset(others), claims
        return tuple(mine)

    def _by_resource(self, entry: PodDevices) -> Iterator[PodDevices]:
        found: dict[str, tuple[str, ...]] = {}
        table = self._table()
        for identifier in entry.device_ids:
            resource = table.resource_of(identifier) or _resource_like(identifier, table)
            if resource is not None:
                found[resource] = (*found.get(resource, ()), identifier)
        for resource, identifiers in found.items():
            yield replace(entry, resource=resource, device_ids=identifiers)


def _resource_like(identifier: str, table: DeviceTable) -> str | None:
    """Return the resource of an identifier's device, which is divided in another way by now."""
    devices = _devices([identifier])
    return next((slot.resource for slot in table.slots if slot.device in devices), None)


def _devices(identifiers: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for identifier in identifiers:
        try:
            found.add(device_of(identifier))
        except ValueError:
            continue
    return found

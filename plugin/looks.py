"""Looks at a board: the scan, the probes and the files that containers may get."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from npu.errors import NpuError
from npu.host import Host
from npu.library import ELF_HEADER_BYTES, driver_too_old, elf_problem, machine_bits
from npu.model import CoreLoad, Inventory, Library, Npu
from plugin.config import PluginConfig
from plugin.health import Finding

#: A driver that takes a device up shows in one of these.
_WHERE_DEVICES_APPEAR: Final = ("/sys/class/drm", "/sys/class/accel", "/sys/class/misc", "/dev")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look at the board saw.

    ``busiest`` is the load of each device's busiest core, None where it is not known.
    """

    inventory: Inventory
    findings: Mapping[str, Finding]
    busiest: Mapping[str, float | None] = field(default_factory=dict)
    extra_devices: tuple[str, ...] = ()
    missing_devices: tuple[str, ...] = ()
    library_problems: tuple[str, ...] = ()
    libraries_ahead: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scanned:
    """What a whole scan found, with what tells that another one would find the same."""

    inventory: Inventory
    at: float
    glance: tuple[object, ...] | None
    library_problems: tuple[str, ...]
    libraries_ahead: tuple[str, ...]


class Looker:
    """Reads a board. ``scan``, ``probe`` and ``load`` take bounded time; ``load`` may raise.

    A scan reads dozens of files, so while all is well and nothing comes or goes (a few ``stat``
    and directory listings tell) it is made every ``health.period_seconds`` only, as are probes.
    """

    def __init__(
        self,
        host: Host,
        config: PluginConfig,
        *,
        scan: Callable[[], Inventory],
        probe: Callable[[Npu], Finding],
        load: Callable[[Npu], tuple[CoreLoad, ...]] = lambda _npu: (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._config = config
        self._scan = scan
        self._probe = probe
        self._load = load
        self._monotonic = monotonic
        self._findings: dict[str, Finding] = {}
        self._probed: Inventory | None = None
        self._probed_at: float | None = None
        self._scanned: _Scanned | None = None

    def look(self) -> Look:
        """Read the board."""
        scanned = self._as_before() or self._scan_all()
        present = tuple(path for path in self._config.extra_devices if self._is_device(path))
        return Look(
            inventory=scanned.inventory,
            findings=dict(self._findings),
            busiest={npu.id: self._busiest(npu) for npu in scanned.inventory.npus},
            extra_devices=present,
            missing_devices=tuple(
                path for path in self._config.extra_devices if path not in present
            ),
            library_problems=scanned.library_problems,
            libraries_ahead=scanned.libraries_ahead,
        )

    def _as_before(self) -> _Scanned | None:
        """Return the last scan where another one is not due and would find the same."""
        last = self._scanned
        if last is None or last.glance is None:
            return None
        if self._monotonic() - last.at >= self._config.health.period_seconds:
            return None
        return last if self._glance(last.inventory) == last.glance else None

    def _glance(self, inventory: Inventory) -> tuple[object, ...] | None:
        """Return what changes with devices that come or go, None where not all is well."""
        nodes = [node.stable_path for npu in inventory.npus for node in npu.nodes]
        if inventory.refused or not nodes:
            return None
        try:
            numbers = tuple(self._host.device_number(self._host.real_path(path)) for path in nodes)
            listed = tuple(tuple(self._host.names(path)) for path in _WHERE_DEVICES_APPEAR)
        except NpuError:
            return None
        return None if None in numbers else (*numbers, *listed)

    def _scan_all(self) -> _Scanned:
        found = self._scan()
        now = self._monotonic()
        due = self._probed_at is None or now - self._probed_at >= self._config.health.period_seconds
        if due or found != self._probed:
            self._findings = {npu.id: self._probe(npu) for npu in found.npus}
            self._probed, self._probed_at = found, now
        problems: list[str] = []
        ahead: list[str] = []
        npus = tuple(
            replace(npu, libraries=tuple(self._usable(npu, problems, ahead))) for npu in found.npus
        )
        self._scanned = _Scanned(
            inventory=replace(found, npus=npus),
            at=now,
            glance=self._glance(found),
            library_problems=tuple(problems),
            libraries_ahead=tuple(ahead),
        )
        return self._scanned

    def _usable(self, npu: Npu, problems: list[str], ahead: list[str]) -> list[Library]:
        """Return the libraries of ``npu`` that a program of this board can load.

        A truncated copy, or one for another machine, would stop every program of the container at
        its start, whereas without it the image's own is used.
        """
        if self._config.library.mode == "none":
            return []
        usable: list[Library] = []
        bits = machine_bits(npu.model)
        for library in npu.libraries:
            try:
                problem = elf_problem(
                    self._host.read(library.path, ELF_HEADER_BYTES), machine_bits=bits
                )
            except NpuError as error:
                problem = str(error)
            if problem is not None:
                problems.append(f"{library.path}: {problem}")
                continue
            usable.append(library)
            needed = driver_too_old(library, npu.driver_version)
            if needed is not None:
                # It is handed out all the same: what a program does with it is the program's.
                ahead.append(
                    f"{library.path} {library.version} asks for driver {needed}, "
                    f"{npu.id} has {npu.driver_version}"
                )
        return usable

    def _is_device(self, path: str) -> bool:
        try:
            return self._host.device_number(self._host.real_path(path)) is not None
        except NpuError:
            return False

    def _busiest(self, npu: Npu) -> float | None:
        try:
            return max((core.ratio for core in self._load(npu)), default=None)
        except NpuError:
            return None

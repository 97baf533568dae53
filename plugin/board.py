"""The board as the plugin offers it: scans, probes, judges and publishes."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from daemon.logs import fields
from npu.errors import NpuError
from npu.host import Host
from npu.library import ELF_HEADER_BYTES, driver_too_old, elf_problem, machine_bits
from npu.model import Inventory, Library, Npu, Refused
from plugin.allocation import Offer
from plugin.ascend import is_ascend
from plugin.claims import Claims
from plugin.config import PluginConfig
from plugin.devices import DeviceTable, build_table, known_npus, resource_of
from plugin.health import Finding, HealthState, absence, advance
from plugin.publication import Publication
from plugin.thermometer import Heated, Thermometer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look at the board saw."""

    inventory: Inventory
    findings: Mapping[str, Finding]
    extra_devices: tuple[str, ...] = ()
    missing_devices: tuple[str, ...] = ()
    library_problems: tuple[str, ...] = ()
    libraries_ahead: tuple[str, ...] = ()


class Board:
    """Turns looks at a board into the published :class:`Offer`.

    ``scan`` and ``probe`` read, in bounded time. ``claims`` tell which identifiers containers
    hold; while they do not, nothing is withdrawn for heat. ``ascend_runtime`` tells that
    ascend-docker-runtime injects Ascend chips. ``step`` is called every
    ``rescan_period_seconds``; devices are probed every ``health.period_seconds``, and at once when
    the scan changes.
    """

    def __init__(
        self,
        host: Host,
        config: PluginConfig,
        *,
        scan: Callable[[], Inventory],
        probe: Callable[[Npu], Finding],
        claims: Claims | None = None,
        thermometer: Thermometer | None = None,
        ascend_runtime: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._config = config
        self._scan = scan
        self._probe = probe
        self._claims = claims or Claims()
        self._thermometer = thermometer
        self._sharing = config.policy
        self._monotonic = monotonic
        self._health: dict[str, HealthState] = {}
        self._findings: dict[str, Finding] = {}
        self._probed: Inventory | None = None
        self._probed_at: float | None = None
        self._reported: tuple[object, ...] = ()
        self.offer = Publication(
            Offer(
                library=config.library.mode,
                container_paths=config.container_paths.by_role(),
                shares=self._sharing.active,
                max_slots_per_container=config.sharing.max_slots_per_container,
                ascend_runtime=ascend_runtime,
            )
        )
        self.refused: tuple[Refused, ...] = ()
        self.missing_devices: tuple[str, ...] = ()
        self.library_problems: tuple[str, ...] = ()
        self.looked = False

    def step(self) -> None:
        """Look at the board once and publish what changed."""
        before = self.offer.value
        look = self._look()
        npus = known_npus(before.table, look.inventory)
        findings = {
            identifier: look.findings.get(identifier) or absence(npu, look.inventory.refused)
            for identifier, npu in npus.items()
        }
        self._report(look)
        self._judge(findings)
        if self._thermometer is not None:
            self._thermometer.step(npus.values(), self._monotonic())
        with self._claims.lock:
            informed = self._claims.informed
            table = build_table(
                npus,
                self._health,
                resources=self._config.resource_names,
                ours=self._config.resources,
                held=self._claims.held(),
                sharing=self._sharing,
                limits=self._thermometer.limits() if self._thermometer and informed else {},
            )
            self.offer.publish(
                replace(before, table=table, extra_devices=look.extra_devices, informed=informed)
            )
        self._tell(before.table, table)
        self.looked = True

    def health(self, device: str) -> HealthState | None:
        """Return the judgement of a device, None for one that was never seen."""
        return self._health.get(device)

    def heated(self) -> Mapping[str, Heated]:
        """Return what is known about the heat of each device that has a sensor."""
        return {} if self._thermometer is None else self._thermometer.heated

    def _look(self) -> Look:
        """Read the board: the only method that touches files."""
        inventory = self._scan()
        now = self._monotonic()
        due = self._probed_at is None or now - self._probed_at >= self._config.health.period_seconds
        if due or inventory != self._probed:
            self._findings = {npu.id: self._probe(npu) for npu in inventory.npus}
            self._probed, self._probed_at = inventory, now
        problems: list[str] = []
        ahead: list[str] = []
        npus = tuple(
            replace(npu, libraries=tuple(self._usable(npu, problems, ahead)))
            for npu in inventory.npus
        )
        present = tuple(path for path in self._config.extra_devices if self._is_device(path))
        return Look(
            inventory=replace(inventory, npus=npus),
            findings=dict(self._findings),
            extra_devices=present,
            missing_devices=tuple(
                path for path in self._config.extra_devices if path not in present
            ),
            library_problems=tuple(problems),
            libraries_ahead=tuple(ahead),
        )

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

    def _judge(self, findings: Mapping[str, Finding]) -> None:
        now = self._monotonic()
        for identifier, finding in findings.items():
            before = self._health.get(identifier)
            after = advance(
                before,
                finding,
                now=now,
                recover_after_seconds=self._config.health.recover_after_seconds,
            )
            self._health[identifier] = after
            if before is None or (before.healthy, before.reason) == (after.healthy, after.reason):
                continue
            level = logging.INFO if after.healthy and after.reason == "ok" else logging.WARNING
            log.log(
                level,
                "Device %s is %s",
                identifier,
                "healthy" if after.healthy else "unhealthy",
                extra=fields(device=identifier, reason=after.reason, detail=after.detail),
            )

    def _tell(self, before: DeviceTable, after: DeviceTable) -> None:
        for identifier, npu in after.npus.items():
            if identifier in before.npus:
                continue
            resource = resource_of(npu, self._config.resource_names, self._sharing)
            log.info(
                "Found device %s: %s",
                npu.nodes[0].path if is_ascend(npu) else identifier,
                npu.model,
                extra=fields(
                    device=identifier,
                    driver=npu.driver,
                    mode=npu.mode,
                    driver_version=npu.driver_version,
                    cores=npu.cores,
                    nodes=" ".join(node.stable_path for node in npu.nodes),
                    resource=resource or "none: no entry in resourceNames",
                ),
            )
        known = {slot.id for slot in before.slots}
        for slot in after.slots:
            if slot.id not in known and slot.reason == "lost":
                log.warning(
                    "A container holds a device that is not found", extra=fields(id=slot.id)
                )

    def _report(self, look: Look) -> None:
        """Log what is not offered, once per change."""
        self.refused = look.inventory.refused
        self.missing_devices = look.missing_devices
        self.library_problems = look.library_problems
        now = (
            self.refused,
            self.missing_devices,
            self.library_problems,
            look.libraries_ahead,
            bool(look.inventory.npus),
        )
        if now == self._reported:
            return
        self._reported = now
        for item in self.refused:
            log.warning(
                "NPU hardware cannot be offered",
                extra=fields(what=item.what, reason=item.why, detail=item.detail),
            )
        for path in self.missing_devices:
            log.warning("This board lacks a device of extraDevices", extra=fields(path=path))
        for problem in self.library_problems:
            log.warning("A runtime library is not handed out", extra=fields(reason=problem))
        for problem in look.libraries_ahead:
            log.warning("A runtime library is newer than the driver", extra=fields(reason=problem))
        if not look.inventory.npus and not self.refused:
            log.info("No NPU on this node; nothing to offer, looking again periodically")

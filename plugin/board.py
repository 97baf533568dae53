"""The board as the plugin offers it: judges what looks at it say, and publishes."""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from daemon.logs import fields
from npu.ids import device_of
from npu.model import Npu, Refused
from plugin.allocation import Offer
from plugin.ascend import is_ascend
from plugin.busy import Unaccounted, observe
from plugin.claims import Claims
from plugin.config import PluginConfig
from plugin.devices import DeviceTable, build_table, known_npus, resource_of, withheld
from plugin.health import Finding, HealthState, absence, advance
from plugin.looks import Look
from plugin.publication import Publication
from plugin.thermometer import Heated, Thermometer

log = logging.getLogger(__name__)


class Board:
    """Turns looks at a board into the published :class:`Offer`.

    ``look`` reads it, in bounded time. ``claims`` tell which identifiers containers hold; while
    they do not, nothing is withdrawn for heat. ``announce`` is called with each offer before it is
    published. ``elsewhere`` are devices that Pods of the node's other mode hold.
    ``ascend_runtime`` tells that ascend-docker-runtime injects Ascend chips. ``step`` is called
    every ``rescan_period_seconds``.
    """

    def __init__(
        self,
        config: PluginConfig,
        *,
        look: Callable[[], Look],
        claims: Claims | None = None,
        thermometer: Thermometer | None = None,
        announce: Callable[[Offer], None] = lambda _offer: None,
        elsewhere: Callable[[], Collection[str]] = tuple,
        ascend_runtime: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._look = look
        self._claims = claims or Claims()
        self._thermometer = thermometer
        self._announce = announce
        self._elsewhere = elsewhere
        self._sharing = config.policy
        self._monotonic = monotonic
        self._health: dict[str, HealthState] = {}
        self._reported: tuple[object, ...] = ()
        self._told_unaccounted: set[str] = set()
        self.offer = Publication(
            Offer(
                library=config.library.mode,
                cdi=config.names_devices,
                container_paths=config.container_paths.by_role(),
                shares=self._sharing.active,
                max_slots_per_container=config.sharing.max_slots_per_container,
                ascend_runtime=ascend_runtime,
            )
        )
        self.refused: tuple[Refused, ...] = ()
        self.unaccounted: dict[str, Unaccounted] = {}
        self.missing_devices: tuple[str, ...] = ()
        self.missing_whole_devices: tuple[str, ...] = ()
        self.library_problems: tuple[str, ...] = ()
        self.looked = False

    def step(self) -> None:
        """Look at the board once and publish what changed."""
        before = self.offer.value
        look = self._look()
        npus = known_npus(before.table, look.inventory)
        self._report(look)
        self._watch_load(look)
        findings = {identifier: self._finding(npu, look) for identifier, npu in npus.items()}
        self._judge(findings)
        # What the container runtime will look up is there before anybody can be told its name.
        self._announce(
            replace(before, table=DeviceTable(npus=npus), extra_devices=look.extra_devices)
        )
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
            table = withheld(table, self._elsewhere())
            self.offer.publish(
                replace(before, table=table, extra_devices=look.extra_devices, informed=informed)
            )
        self._tell(before.table, table)
        self.looked = True

    def health(self, device: str) -> HealthState | None:
        """Return the judgement of a device, None for one that was never seen."""
        return self._health.get(device)

    def evident(self, device: str) -> bool:
        """Tell whether a device has been under full load for long while nobody holds it."""
        seen = self.unaccounted.get(device)
        return seen is not None and seen.evident(self._monotonic())

    def heated(self) -> Mapping[str, Heated]:
        """Return what is known about the heat of each device that has a sensor."""
        return {} if self._thermometer is None else self._thermometer.heated

    def _finding(self, npu: Npu, look: Look) -> Finding:
        finding = look.findings.get(npu.id)
        if finding is None:
            return absence(npu, look.inventory.refused)
        if (
            self._config.health.stuck_is_unhealthy
            and finding.verdict != "bad"
            and self.evident(npu.id)
        ):
            return Finding(
                verdict="bad",
                reason="stuck",
                detail="under full load while nobody holds it; see dmesg, and who has it open",
            )
        return finding

    def _watch_load(self, look: Look) -> None:
        """Look for load without a holder; it is told, and by default nothing follows."""
        held = self._claims.held()
        devices = {device for ids in held.values() for device in _devices(ids)}
        now = self._monotonic()
        for device, ratio in look.busiest.items():
            before = self.unaccounted.get(device, Unaccounted())
            after = observe(
                before,
                busiest_ratio=ratio,
                held=device in devices if self._claims.informed else None,
                now=now,
            )
            self.unaccounted[device] = after
            told = device in self._told_unaccounted
            if after.evident(now) and not told:
                self._told_unaccounted.add(device)
                log.warning(
                    "Device %s is under full load and nobody holds it: a program outside "
                    "Kubernetes, or a wedged NPU",
                    device,
                    extra=fields(device=device),
                )
            elif told and after.since is None:
                self._told_unaccounted.discard(device)
                log.info("Device %s is not under unaccounted load any more", device)

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
        found = {npu.id for npu in look.inventory.npus}
        self.missing_whole_devices = tuple(
            device for device in self._config.sharing.whole_devices if device not in found
        )
        now = (
            self.refused,
            self.missing_devices,
            self.missing_whole_devices,
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
        for device in self.missing_whole_devices:
            log.warning(
                "This board lacks a device of sharing.wholeDevices", extra=fields(device=device)
            )
        for problem in self.library_problems:
            log.warning("A runtime library is not handed out", extra=fields(reason=problem))
        for problem in look.libraries_ahead:
            log.warning("A runtime library is newer than the driver", extra=fields(reason=problem))
        if not look.inventory.npus and not self.refused:
            log.info("No NPU on this node; nothing to offer, looking again periodically")


def _devices(identifiers: Collection[str]) -> Iterator[str]:
    """Yield the devices of identifiers; another plugin's are passed over."""
    for identifier in identifiers:
        try:
            yield device_of(identifier)
        except ValueError:
            continue

"""The state of devices and holders, as gauges and as JSON for people and scripts."""

import json
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

from daemon.http import Request, Response
from npu.heat import Heat
from npu.library import driver_too_old
from plugin.board import Board
from plugin.cdi import SpecFile
from plugin.checkpoint import CheckpointWatch
from plugin.clamp import Clamp
from plugin.devices import Slot, SlotState
from plugin.holders import Holder, Holders
from plugin.metrics import counter, gauge
from plugin.thermometer import rounded

_STATES: tuple[SlotState, ...] = ("healthy", "unhealthy", "withdrawn")
_HEALTH = ("healthy", "unhealthy", "unknown")


class Report:
    """Tells what ``board`` offers and what ``holders`` knows; answers from memory.

    ``stuck_on`` is the path of a read that hangs in the kernel.
    """

    def __init__(
        self,
        board: Board,
        holders: Holders,
        checkpoint: CheckpointWatch,
        *,
        clamp: Clamp | None = None,
        spec_file: SpecFile | None = None,
        stuck_on: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._board = board
        self._holders = holders
        self._checkpoint = checkpoint
        self._clamp = clamp
        self._spec_file = spec_file
        self._stuck_on = stuck_on

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges of devices, slots, hardware that is not offered, and holders."""
        yield from self._slots()
        yield from self._heat()
        yield from self._hardware()
        family = gauge("allocated", "Identifiers held by containers, as last known.", ["resource"])
        held = self._holders.held()
        for resource in self._board.offer.value.table.resources():
            family.add_metric([resource], len(held.get(resource, {})))
        yield family
        age = self._holders.age_seconds()
        family = gauge("pod_resources_age_seconds", "Age of the knowledge about holders.")
        if age is not None:
            family.add_metric([], age)
        yield family
        failures = counter("pod_resources_errors", "Failed PodResources calls.", ["reason"])
        for reason, count in self._holders.errors.items():
            failures.add_metric([reason], count)
        yield failures
        stale = gauge(
            "stale_checkpoint_entries",
            "Identifiers that the kubelet's checkpoint keeps for containers that do not exist.",
            ["resource"],
        )
        counts = Counter(entry.resource for entry in self._checkpoint.stale)
        for resource in self._board.offer.value.table.resources():
            stale.add_metric([resource], counts[resource])
        yield stale

    def allocations(self, _request: Request) -> Response:
        """Answer ``/allocations``."""
        body = json.dumps(self.as_data(), indent=2, ensure_ascii=False) + "\n"
        # Names of files on the board need not be UTF-8.
        content = body.encode(errors="backslashreplace")
        return Response(body=content, content_type="application/json")

    def as_data(self) -> dict[str, object]:
        """Return identifiers with health, reason and holder, and what is not offered and why."""
        held = self._holders.held()
        problem, age = self._holders.problem(), self._holders.age_seconds()
        return {
            "devices": [
                _slot(slot, held.get(slot.resource, {}).get(slot.id))
                for slot in self._board.offer.value.table.slots
            ],
            "heat": [
                {
                    "device": device,
                    "state": heated.machine.state,
                    "celsius": rounded(heated.machine.celsius),
                    "slots": heated.slots,
                    "limit": heated.allowed,
                }
                for device, heated in self._board.heated().items()
            ],
            "notOffered": [
                {"what": item.what, "reason": item.why, "detail": item.detail}
                for item in self._board.refused
            ],
            "missingExtraDevices": list(self._board.missing_devices),
            "missingWholeDevices": list(self._board.missing_whole_devices),
            "libraries": [
                {
                    "device": npu.id,
                    "path": item.path,
                    "version": item.version,
                    "driverVersion": npu.driver_version,
                    "neededDriverVersion": driver_too_old(item, npu.driver_version),
                }
                for npu in self._board.offer.value.table.npus.values()
                for item in npu.libraries
            ],
            "libraryProblems": list(self._board.library_problems),
            "stuckOn": self._stuck_on(),
            "unaccountedLoad": [
                device for device in self._board.unaccounted if self._board.evident(device)
            ],
            "clamped": [
                {
                    "device": npu.id,
                    "originalHertz": limit.original_hertz,
                    "clampedHertz": limit.clamped_hertz,
                }
                for npu in self._board.offer.value.table.npus.values()
                if self._clamp is not None and (limit := self._clamp.clamped(npu)) is not None
            ],
            "clampProblems": {} if self._clamp is None else dict(self._clamp.problems),
            "cdiProblem": None if self._spec_file is None else self._spec_file.problem,
            "staleCheckpointEntries": [
                {
                    "resource": entry.resource,
                    "id": entry.id,
                    "podUID": entry.pod_uid,
                    "container": entry.container,
                }
                for entry in self._checkpoint.stale
            ],
            "checkpointProblem": self._checkpoint.problem,
            "holders": {
                "known": age is not None,
                "ageSeconds": None if age is None else round(age, 1),
                "note": problem
                and f"holders are {'as last known' if age is not None else 'unknown'}: {problem}",
            },
        }

    def _slots(self) -> Iterator[Metric]:
        table = self._board.offer.value.table
        states = Counter((slot.resource, slot.state) for slot in table.slots)
        slots = gauge("slots", "Identifiers listed, by state.", ["resource", "state"])
        withdrawn = gauge(
            "slots_withdrawn",
            "Free identifiers of healthy devices that are not offered at the moment, by reason.",
            ["resource", "device", "reason"],
        )
        devices = gauge(
            "devices",
            "NPUs by health; unknown ones could not be measured and are offered.",
            ["resource", "health"],
        )
        health = gauge(
            "device_health",
            "Health of an NPU (1 healthy, 0 not) and the reason.",
            ["resource", "device", "reason"],
        )
        for resource in table.resources():
            for state in _STATES:
                slots.add_metric([resource, state], states[resource, state])
            found = {slot.device: slot for slot in table.of(resource)}
            kinds = Counter(self._kind(slot) for slot in found.values())
            for kind in _HEALTH:
                devices.add_metric([resource, kind], kinds[kind])
            for device, slot in found.items():
                judged = self._board.health(device)
                reason = slot.reason if judged is None else judged.reason
                health.add_metric([resource, device, reason], float(slot.state != "unhealthy"))
        reasons = Counter(
            (slot.resource, slot.device, slot.reason)
            for slot in table.slots
            if slot.state == "withdrawn"
        )
        for key, count in reasons.items():
            withdrawn.add_metric(list(key), count)
        yield from (slots, withdrawn, devices, health)

    def _kind(self, slot: Slot) -> str:
        judged = self._board.health(slot.device)
        if slot.state == "unhealthy" or judged is None or not judged.healthy:
            return "unhealthy"
        return "unknown" if judged.reason == "unmeasured" else "healthy"

    def _heat(self) -> Iterator[Metric]:
        states = gauge(
            "heat_state",
            "State of a device's heat by the plugin's own reading (1: this one).",
            ["device", "state"],
        )
        limits = gauge(
            "slot_limit", "Slots that may be in use or on offer at the device's heat.", ["device"]
        )
        for device, heated in self._board.heated().items():
            for state in Heat:
                states.add_metric([device, state], float(heated.machine.state is state))
            limits.add_metric([device], heated.allowed)
        yield from (states, limits)
        if self._clamp is not None:
            clamped = gauge(
                "clamped_hertz",
                "Clock limit that the plugin set on a device that gets hot.",
                ["device"],
            )
            for npu in self._board.offer.value.table.npus.values():
                held = self._clamp.clamped(npu)
                if held is not None:
                    clamped.add_metric([npu.id], held.clamped_hertz)
            failures = counter("clamp_failures", "Changes of a clock limit that failed.")
            failures.add_metric([], self._clamp.failures)
            yield from (clamped, failures)

    def _hardware(self) -> Iterator[Metric]:
        refused = gauge("hardware_refused", "NPU hardware that cannot be offered.", ["reason"])
        for reason, count in Counter(item.why for item in self._board.refused).items():
            refused.add_metric([reason], count)
        yield refused
        missing = gauge("extra_devices_missing", "Entries of extraDevices this board lacks.")
        missing.add_metric([], len(self._board.missing_devices))
        yield missing
        libraries = gauge("libraries_refused", "Runtime libraries found that no board can load.")
        libraries.add_metric([], len(self._board.library_problems))
        yield libraries
        yield from self._libraries()
        unaccounted = gauge(
            "unaccounted_load",
            "Whether a device is under full load that nobody accounts for: a program outside "
            "Kubernetes, or a wedged NPU. Absent where load or holders are not known.",
            ["device"],
        )
        for device, seen in self._board.unaccounted.items():
            evident = self._board.evident(device)
            if seen.known or evident:
                unaccounted.add_metric([device], float(evident))
        yield unaccounted
        if self._spec_file is not None:
            written = gauge("cdi_file_written", "Whether the CDI file says what is offered.")
            written.add_metric([], float(self._spec_file.problem is None))
            failures = counter("cdi_file_failures", "Writes of the CDI file that failed.")
            failures.add_metric([], self._spec_file.failures)
            yield from (written, failures)
        stuck = gauge("board_stuck", "Whether reading the board hangs in the kernel.")
        stuck.add_metric([], float(self._stuck_on() is not None))
        yield stuck

    def _libraries(self) -> Iterator[Metric]:
        info = gauge(
            "library_info",
            "Runtime library of the board that holders of the device get (always 1).",
            ["device", "library", "version", "driver_version"],
        )
        old = gauge(
            "library_driver_too_old",
            "Whether the library asks for a newer driver than the board has (1) or not (0).",
            ["device", "library"],
        )
        for npu in self._board.offer.value.table.npus.values():
            for item in npu.libraries:
                versions = [item.version or "", npu.driver_version or ""]
                info.add_metric([npu.id, item.name, *versions], 1)
                too_old = driver_too_old(item, npu.driver_version) is not None
                old.add_metric([npu.id, item.name], float(too_old))
        yield from (info, old)


def _slot(slot: Slot, holder: Holder | None) -> dict[str, object]:
    return {
        "id": slot.id,
        "device": slot.device,
        "resource": slot.resource,
        "health": "Healthy" if slot.state == "healthy" else "Unhealthy",
        "state": slot.state,
        "reason": slot.reason,
        "detail": slot.detail,
        "holder": holder
        and {"namespace": holder.namespace, "pod": holder.pod, "container": holder.container},
    }

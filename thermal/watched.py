"""One managed node: the heat machine of each of its devices, advanced by what its exporter says."""

from dataclasses import dataclass, field

from npu import heat, ids
from npu.heat import Heat, Machine, Reading, Transition
from npu.thresholds import Settings, Thresholds, Trip
from thermal import record, taints
from thermal.names import ANNOTATION_STATE
from thermal.objects import NodeRecord
from thermal.policy import DeviceHeat
from thermal.readings import DeviceSample, NodeSample, busy_ratio
from thermal.source import Result


@dataclass(slots=True, kw_only=True)
class Watched:
    """What is remembered of a node. Times are monotonic seconds.

    ``due_at`` is when its exporter is asked next, ``adopted`` the record that an earlier guard left
    on the Node, ``problem`` why the last reading was none. ``state`` and ``since`` are what was
    last published, ``unscheduled_since`` when its exporter Pod was first missed.
    """

    settings: Settings
    known_at: float
    due_at: float
    limits: Thresholds
    trips: tuple[Trip, ...] = ()
    machines: dict[str, Machine] = field(default_factory=dict)
    samples: dict[str, DeviceSample] = field(default_factory=dict)
    gone_since: dict[str, float] = field(default_factory=dict)
    adopted: record.Record | None = None
    state: Heat | None = None
    since: str = ""
    problem: str | None = None
    hardware: tuple[str, ...] = ()
    unscheduled_since: float | None = None

    @property
    def warm(self) -> bool:
        """Whether a device is at least warm, as far as is known."""
        return any(
            heat.severity(machine.known) >= heat.severity(Heat.WARM)
            for machine in self.machines.values()
        )

    def observe(
        self, result: Result, now: float, *, forget_seconds: float
    ) -> list[tuple[str, Transition]]:
        """Advance the machines by a page, or by the lack of one; return what changed, by device."""
        present: dict[str, DeviceSample] = {}
        mitigating = None
        if isinstance(result, NodeSample):
            self.problem = None
            self.hardware = result.hardware
            self._meet(result, now, forget_seconds)
            present = {device.device: device for device in result.devices}
            mitigating = result.mitigating
        else:
            self.problem = f"{result.reason}: {result.detail}" if result.detail else result.reason
        changes: list[tuple[str, Transition]] = []
        for device, machine in list(self.machines.items()):
            sample = present.get(device)
            reading = Reading()
            if sample is not None:
                reading = Reading(
                    celsius=sample.celsius,
                    clock_hertz=sample.clock_hertz,
                    busy_ratio=busy_ratio(self.samples.get(device), sample),
                    mitigating=mitigating,
                )
                self.samples[device] = sample
            self.machines[device], transition = heat.step(machine, reading, now, self.limits)
            if transition is not None:
                changes.append((device, transition))
        return changes

    def heats(self, now: float) -> tuple[DeviceHeat, ...]:
        """Return the devices as the policy sees them."""
        return tuple(
            DeviceHeat(
                device=device,
                vendor=self.samples[device].vendor if device in self.samples else "",
                state=machine.state,
                known=machine.known,
                celsius=machine.celsius,
                missing_seconds=machine.missing_seconds(now),
                hot_entries=len(machine.hot_entries),
                state_seconds=max(0.0, now - machine.since),
            )
            for device, machine in sorted(
                self.machines.items(), key=lambda item: ids.sort_key(item[0])
            )
        )

    def settled(self, now: float, *, lost_seconds: float) -> bool:
        """Tell whether something may be published: every device has its readings or lost them."""
        return all(
            not machine.starting or machine.missing_seconds(now) >= lost_seconds
            for machine in self.machines.values()
        )

    def _meet(self, sample: NodeSample, now: float, forget_seconds: float) -> None:
        """Take note of devices and trip points; forget devices that the exporter denies for long.

        Only a device that was not overheated is forgotten: an overheated one needs a reading.
        """
        before = Heat.COOL
        if self.adopted is not None and not self.adopted.devices:
            before = self.adopted.state
        for device in sample.devices:
            if device.device not in self.machines:
                self.machines[device.device] = heat.start(now, before=before)
        seen = {device.device for device in sample.devices}
        for name, machine in list(self.machines.items()):
            if name in seen:
                self.gone_since.pop(name, None)
                continue
            since = self.gone_since.setdefault(name, now)
            calm = machine.known not in heat.OVERHEATED
            if seen and calm and now - since >= forget_seconds:
                del self.machines[name], self.gone_since[name]
                self.samples.pop(name, None)
        if sample.devices:
            # Without trip points in this page, those of the last one still hold.
            self.trips = sample.trips or self.trips
            self.limits = self.settings.resolve(
                model=sample.devices[0].model,
                trips=self.trips,
                simulated=all(device.simulated for device in sample.devices),
            )


def adopt(node: NodeRecord, settings: Settings, now: float, *, due_at: float) -> Watched:
    """Begin to watch a node, with what an earlier guard recorded on it."""
    watched = Watched(
        settings=settings,
        known_at=now,
        due_at=due_at,
        limits=settings.resolve(model=None, trips=(), simulated=False),
    )
    adopted = record.decode(node.annotations.get(ANNOTATION_STATE))
    if adopted is None and taints.applied_effect(node.taints) is not None:
        # Closed by us, and somebody removed the record: what is not known may be hot.
        adopted = record.Record(state=Heat.HOT)
    if adopted is not None:
        watched.adopted = adopted
        watched.state, watched.since = adopted.state, adopted.since
        for device, state in adopted.devices.items():
            watched.machines[device] = heat.start(
                now, before=state, hot_entries=adopted.hot_entries.get(device, 0)
            )
    return watched

"""From the heat of a node's devices to what should be done about it. Pure.

The order of strength: fewer slots first, no new work second, eviction third. Missing data is
neither hot nor cool: it freezes what was decided, and only a node that was at least warm is closed
when its data stays away.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from npu.heat import OVERHEATED, Heat, severity
from thermal.actions import Action, Evict, Expel, LimitSlots, Release, StopNewWork

_BUCKET_CELSIUS = 5

MissingData = Literal["hold", "failSafe", "failOpen"]
ConditionStatus = Literal["True", "False", "Unknown"]

#: Why a decision was weakened: too many nodes are closed, a storm, no other node to go to.
HeldBack = Literal["budget", "storm", "single_node"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHeat:
    """A device as its machine sees it; ``known`` is the last state that was not unknown.

    ``state_seconds`` is for how long it has been in ``state``.
    """

    device: str
    vendor: str
    state: Heat
    known: Heat
    celsius: float | None
    missing_seconds: float
    hot_entries: int = 0
    state_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHeat:
    """A node with its devices. ``settled`` is False until its state may be published.

    ``unscheduled_seconds`` is for how long no exporter Pod has been bound to the node, as this
    guard saw it; None where one is.
    """

    node: str
    devices: tuple[DeviceHeat, ...]
    settled: bool
    ready: bool
    unscheduled_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a person may choose. ``evict_in`` is empty where nothing is evicted.

    ``expel_after_seconds`` is how long a node is ``critical`` before everything must leave it, None
    where that never happens. What was begun is ended ``blind_seconds`` after the last reading.
    """

    missing_data: MissingData = "hold"
    lost_seconds: float = 60.0
    forget_seconds: float = 1800.0
    evict_in: frozenset[Heat] = frozenset()
    expel_after_seconds: float | None = None
    blind_seconds: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionValue:
    """The node condition without its times."""

    status: ConditionStatus
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a node is and what should be true of it.

    ``state`` is the node's: the worst of its devices, except that ``unknown`` gives way to
    overheated only. ``condition`` is None where the condition should not exist. ``held_back`` tells
    what a look at the whole fleet took away from ``actions``.
    """

    node: str
    state: Heat
    condition: ConditionValue | None
    actions: tuple[Action, ...]
    devices: tuple[DeviceHeat, ...]
    held_back: tuple[HeldBack, ...] = ()

    @property
    def stop(self) -> StopNewWork | None:
        """The action that closes the node, None where it is open."""
        return next((a for a in self.actions if isinstance(a, StopNewWork)), None)

    @property
    def expel(self) -> Expel | None:
        """The action that empties the node by force, None where that is not wanted."""
        return next((a for a in self.actions if isinstance(a, Expel)), None)

    @property
    def forget(self) -> bool:
        """Whether the node is no longer looked after."""
        return any(isinstance(action, Release) and action.forget for action in self.actions)


_HELD_BACK_MESSAGES: dict[HeldBack, str] = {
    "budget": "enough nodes are closed, so this one is only avoided",
    "storm": "many nodes became hot at once, so nothing is evicted",
    "single_node": "there is no other node, so it stays open",
}


def held_back(decision: Decision, actions: tuple[Action, ...], by: HeldBack) -> Decision:
    """Return the decision with weaker actions, and why, also for readers of the condition."""
    condition = decision.condition
    if condition is not None:
        message = f"{condition.message}; {_HELD_BACK_MESSAGES[by]}"
        condition = replace(condition, message=message)
    return replace(
        decision, actions=actions, condition=condition, held_back=(*decision.held_back, by)
    )


#: Changes decisions of a whole fleet, hottest first: a budget, a brake. Only ever weakens them.
Restraint = Callable[[Sequence[Decision]], Sequence[Decision]]

_MESSAGES = {
    "TemperatureNormal": "below the temperature at which new work is stopped",
    "Recovering": "was hot, gets work again and is watched",
    "Hot": "too hot or throttled by the kernel: no new work",
    "Critical": "heat that the kernel cannot hold down: no new work, less load needed",
    "Emergency": "close to the power-off temperature: take the load away now",
    "SensorTimeout": "no valid temperature for some seconds: nothing is changed",
    "SensorLost": "no valid temperature: neither hot nor cool is known",
}
_REASONS: dict[Heat, tuple[ConditionStatus, str]] = {
    Heat.COOL: ("False", "TemperatureNormal"),
    Heat.WARM: ("False", "TemperatureNormal"),
    Heat.RECOVERING: ("False", "Recovering"),
    Heat.HOT: ("True", "Hot"),
    Heat.CRITICAL: ("True", "Critical"),
    Heat.EMERGENCY: ("True", "Emergency"),
}
#: Slots a shared device should keep; states that are not listed limit nothing from here.
_SLOTS = {Heat.HOT: 1, Heat.CRITICAL: 0, Heat.EMERGENCY: 0}


def decide(heat: NodeHeat, policy: Policy) -> Decision | None:
    """Return what should be true of a node, None where nothing may be said yet."""
    state = _worst([device.state for device in heat.devices])
    if not heat.settled:
        return None
    if _abandoned(heat, policy):
        return Decision(
            node=heat.node,
            state=state,
            condition=None,
            actions=(Release(forget=True),),
            devices=heat.devices,
        )
    if not heat.devices:
        return None
    return Decision(
        node=heat.node,
        state=state,
        condition=_condition(heat, state, policy),
        actions=tuple(_actions(heat, policy)),
        devices=heat.devices,
    )


def closed(device: DeviceHeat, policy: Policy) -> bool:
    """Tell whether a device should get no new work."""
    if device.state is not Heat.UNKNOWN:
        return device.state in OVERHEATED
    lost = device.missing_seconds >= policy.lost_seconds
    if lost and policy.missing_data == "failOpen":
        return False
    if lost and policy.missing_data == "failSafe":
        return True
    if device.known in OVERHEATED:
        return True
    return lost and severity(device.known) >= severity(Heat.WARM)


def bucket_celsius(celsius: float) -> int:
    """Return a temperature rounded down to the steps that Node objects show."""
    return int(celsius // _BUCKET_CELSIUS) * _BUCKET_CELSIUS


def _actions(heat: NodeHeat, policy: Policy) -> list[Action]:
    shut = [device for device in heat.devices if closed(device, policy)]
    actions: list[Action] = [
        LimitSlots(device=device.device, slots=_SLOTS[device.state])
        for device in heat.devices
        if device.state in _SLOTS
    ]
    # A node stays open while one of its devices can take work: closing it would take that one away.
    if len(shut) == len(heat.devices):
        known = [device.celsius for device in shut if device.celsius is not None]
        actions.append(
            StopNewWork(
                devices=tuple(device.device for device in shut),
                bucket_celsius=bucket_celsius(max(known)) if known else None,
            )
        )
    else:
        actions.append(Release())
    leave = tuple(device.device for device in heat.devices if device.state in policy.evict_in)
    if leave:
        actions.append(Evict(devices=leave))
    if len(shut) == len(heat.devices) and policy.expel_after_seconds is not None:
        if any(_unbearable(device, policy.expel_after_seconds) for device in heat.devices):
            actions.append(Expel())
        elif any(_unbearable_when_seen(device, policy) for device in heat.devices):
            actions.append(Expel(start=False))
    return actions


def _unbearable(device: DeviceHeat, after_seconds: float) -> bool:
    """Tell whether a device is so hot that nothing may stay. Missing data never is."""
    if device.state is Heat.EMERGENCY:
        return True
    return device.state is Heat.CRITICAL and device.state_seconds >= after_seconds


def _unbearable_when_seen(device: DeviceHeat, policy: Policy) -> bool:
    blind = device.state is Heat.UNKNOWN and device.missing_seconds < policy.blind_seconds
    return blind and device.known in (Heat.CRITICAL, Heat.EMERGENCY)


def _abandoned(heat: NodeHeat, policy: Policy) -> bool:
    """Tell whether the exporter is gone on purpose: nobody will ever report again."""
    return (
        heat.ready
        and heat.unscheduled_seconds is not None
        and heat.unscheduled_seconds >= policy.forget_seconds
        and all(d.missing_seconds >= policy.forget_seconds for d in heat.devices)
    )


def _condition(heat: NodeHeat, state: Heat, policy: Policy) -> ConditionValue:
    if state is Heat.UNKNOWN:
        blind = [d for d in heat.devices if d.state is Heat.UNKNOWN]
        lost = any(device.missing_seconds >= policy.lost_seconds for device in blind)
        status: ConditionStatus = "Unknown"
        reason = "SensorLost" if lost else "SensorTimeout"
        named = blind
    else:
        status, reason = _REASONS[state]
        named = [d for d in heat.devices if _REASONS.get(d.state) == (status, reason)]
    devices = ", ".join(device.device for device in named)
    return ConditionValue(status=status, reason=reason, message=f"{devices}: {_MESSAGES[reason]}")


def _worst(states: Sequence[Heat]) -> Heat:
    worst = max(states, key=severity, default=Heat.UNKNOWN)
    if worst not in OVERHEATED and Heat.UNKNOWN in states:
        return Heat.UNKNOWN
    return worst

"""Where the pure core ends: what should be true of a node's devices now.

Actions are levels, not events: a decision names all of them every time, and an actuator compares
them with what is there. They say nothing about how: on a cluster with the device plugin they end
in Node taints, on one with Dynamic Resource Allocation they can end in DeviceTaintRules.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSlots:
    """At most ``slots`` slots of a shared device should be in use.

    With the device plugin this is carried out on the node, from the plugin's own readings, so that
    it works without API server and guard.
    """

    device: str
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNewWork:
    """These devices should get no new work.

    ``bucket_celsius`` is their temperature, rounded down to 5 °C, None where it is not known.
    ``soft`` asks to avoid them instead of forbidding it.
    """

    devices: tuple[str, ...]
    bucket_celsius: int | None = None
    soft: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    """Work should leave these devices."""

    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expel:
    """Everything that does not tolerate it should leave the node, at once and unasked.

    The last resort: with Node taints it is ``NoExecute``, which deletes Pods of any kind and
    respects no disruption budget. ``start`` False keeps what was begun and begins nothing.
    """

    start: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Whatever was stopped here may go on; with ``forget`` the node is no longer looked after."""

    forget: bool = False


Action = LimitSlots | StopNewWork | Evict | Expel | Release

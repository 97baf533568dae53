"""What a board is: frozen records, no input or output."""

from dataclasses import dataclass, field
from typing import Literal

Vendor = Literal["rockchip", "huawei"]
Mode = Literal["drm", "misc", "accel", "davinci"]
NodeRole = Literal["card", "render", "misc", "accel", "davinci", "manager"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A device node a workload needs.

    ``path`` is the node as the board names it now. ``stable_path`` is what to hand to the kubelet:
    the ``/dev/dri/by-path`` link where there is one, because the kubelet replays an old answer
    after a reboot, when DRM numbers may have changed. ``container_path`` is the same on every boot.
    """

    role: NodeRole
    path: str
    stable_path: str
    container_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A vendor runtime library found on the board; ``version`` is None where it cannot be read."""

    name: str
    path: str
    version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Npu:
    """One NPU with a working driver.

    ``id`` is stable over reboots (position in the order of platform addresses). ``unit`` is the
    platform device, e.g. ``fdab0000.npu``. ``cores`` is what the driver reports, None where it
    reports nothing. ``zone`` is the type of the thermal zone that is judged, None where the board
    has no usable one; ``zone_is_npu`` is False for a fallback such as ``soc-thermal``.
    ``load_is_estimate`` tells that load is not measured by the driver but derived from the time the
    power was on, which is never less than the time jobs ran.

    ``files`` are files and directories of the board that programs need at the same path.
    ``numa_node`` is the memory node next to the NPU, None where nothing tells. ``groups`` name what
    the NPU shares with others, outermost first: those that share more are nearer to each other.
    """

    id: str
    vendor: Vendor
    model: str
    driver: str
    mode: Mode
    unit: str
    driver_version: str | None = None
    cores: int | None = None
    nodes: tuple[DeviceNode, ...] = ()
    zone: str | None = None
    zone_is_npu: bool = False
    board: str | None = None
    load_is_estimate: bool = False
    libraries: tuple[Library, ...] = field(default=())
    files: tuple[str, ...] = ()
    numa_node: int | None = None
    groups: tuple[str, ...] = ()


#: Why hardware is not offered. The strings are label values of ``npu_hardware_present``.
RefusalReason = Literal["driver_not_bound", "node_disabled", "no_device_node", "unreadable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """NPU hardware that is present and cannot be used; ``detail`` says what to do."""

    what: str
    why: RefusalReason
    detail: str
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What a scan found."""

    npus: tuple[Npu, ...] = ()
    refused: tuple[Refused, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreLoad:
    """Busy share of one core in the last full second, 0 to 1.

    ``clamped`` tells that the driver said more than 100 % (drivers before 0.9.x overflow).
    """

    core: int
    ratio: float
    clamped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Clock of the NPU in hertz; each value is None where it cannot be read.

    ``current_hertz`` is cached by devfreq (reading it does not power the NPU on); 0 is what some
    kernels print for an NPU that never ran and is passed on as None.
    """

    current_hertz: int | None = None
    minimum_hertz: int | None = None
    maximum_hertz: int | None = None
    hardware_maximum_hertz: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TripPoint:
    """A trip point of a thermal zone, ``kind`` as in sysfs (passive, active, hot, critical)."""

    kind: str
    millicelsius: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThermalZone:
    """A thermal zone as the kernel lists it; ``type`` identifies it, never ``index``."""

    index: int
    type: str
    trips: tuple[TripPoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CoolingDevice:
    """A cooling device and the throttle step in force; ``is_fan`` ones do not show throttling.

    ``type`` may repeat on one board, ``index`` does not; the kernel assigns it at boot.
    """

    index: int
    type: str
    state: int
    maximum_state: int
    is_fan: bool

"""The plugin's configuration file."""

import re
from typing import Annotated, Literal

import msgspec

from npu import names
from npu.ids import device_of, slot_of
from npu.thresholds import Settings
from plugin.ascend import Injection
from plugin.limiter import Pace
from plugin.sharing import SHARED_SUFFIX, Sharing

LibraryMode = Literal["neutral", "system", "none"]
DeviceInjection = Literal["deviceSpecs", "cdi"]
Mode = Literal["devicePlugin", "dra"]

_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
_RESOURCE = re.compile(rf"{_DOMAIN}/{_NAME}")
_PATH = re.compile(r"(/[A-Za-z0-9._+:@-]+)+")

PositiveSeconds = Annotated[float, msgspec.Meta(gt=0, le=86400)]


class _Block(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A block of the file: keys in camelCase, unknown keys are mistakes."""


class HealthConfig(_Block, frozen=True):
    """How device health is judged."""

    #: Time between two probes of a device.
    period_seconds: PositiveSeconds = 30.0
    #: How long a device must look well before it is offered again.
    recover_after_seconds: Annotated[float, msgspec.Meta(ge=0, le=86400)] = 60.0
    #: Whether to open device nodes at each probe, which the device cgroup allows only to a
    #: privileged container.
    open_device: bool = False
    #: Whether to load the runtime library at each probe, in a process of its own.
    dlopen: bool = False
    #: Whether a device under full load that nobody holds is unhealthy, not only told. A program
    #: outside Kubernetes looks like a wedged NPU.
    stuck_is_unhealthy: bool = False


class LibraryConfig(_Block, frozen=True):
    """Where a container finds the board's runtime library."""

    #: ``neutral`` in a folder of its own, ``system`` over the image's ``/usr/lib``, ``none``
    #: nowhere.
    mode: LibraryMode = "neutral"
    #: Directories of the board searched before the usual ones.
    search_paths: tuple[str, ...] = ()


class SharingConfig(_Block, frozen=True):
    """How many containers may have an NPU at the same time.

    Cores and memory are not divided: programs that share an NPU can slow each other down, take each
    other's memory, and on some boards concurrent programs hang the driver or the whole board.
    """

    #: Slots per NPU; 1 is the whole NPU for one container, ``cores`` one slot per core.
    slots: Annotated[int, msgspec.Meta(ge=1, le=64)] | Literal["cores"] = 1
    #: Whether slots have the resource's own name or that name with ``.shared``.
    resource_name: Literal["same", "shared"] = "same"
    #: How many slots one container may have; more slots are no larger share.
    max_slots_per_container: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    #: Devices that stay whole beside shared ones, for example ``npu0``: a split for good, as two
    #: pools of one device would race in the kubelet. Needs ``resource_name`` ``shared``.
    whole_devices: tuple[str, ...] = ()


class ContainerPathsConfig(_Block, frozen=True):
    """Names of the DRM nodes inside containers; absent: the usual ones of this board's position.

    A fixed name belongs to one NPU, so a container cannot have two.
    """

    card: str | None = None
    render: str | None = None

    def by_role(self) -> dict[str, str]:
        """Return the names that are fixed."""
        named = {"card": self.card, "render": self.render}
        return {role: path for role, path in named.items() if path is not None}


class AscendConfig(_Block, frozen=True):
    """How containers get Ascend chips."""

    #: By the plugin (``devices``), by ascend-docker-runtime (``runtime``), or by that runtime where
    #: the plugin itself was started by it (``auto``).
    injection: Injection = "devices"


class HeatConfig(_Block, frozen=True):
    """How free slots follow the heat of their device."""

    #: Whether they do.
    enabled: bool = True
    #: From half-way between warm and hot on, one slot or step of the clock less in this time.
    lower_every_seconds: PositiveSeconds = 30.0
    #: Below the leaving temperature of warm, one slot or step of the clock more in this time.
    raise_every_seconds: PositiveSeconds = 120.0
    #: Whether to lower the clock of a warm device in steps. Some ports of the driver hang on that.
    clamp_frequency: bool = False
    #: Part of the highest clock that it is never lowered below.
    clamp_ratio: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.6


class DraConfig(_Block, frozen=True):
    """How claims are prepared (``mode`` ``dra``)."""

    #: Whether to ask the API server which devices a claim was given. Needed where a node has more
    #: than one device of a driver: slots, or several chips.
    read_claims: bool = False


class PluginConfig(_Block, frozen=True):
    """The whole file; every key has a default."""

    #: Whether NPUs are counted by the kubelet (device plugin) or allocated by claims (Dynamic
    #: Resource Allocation). Pods ask for them in the same words.
    mode: Mode = "devicePlugin"
    dra: DraConfig = DraConfig()
    #: Resource name by driver (``rknpu``, ``rocket``) or by model, the model winning. An NPU that
    #: matches no key is not offered. Ascend chips go by model, because a name is a promise of one
    #: kind of chip; the model of a part of a chip ends in ``-vnpu``.
    resource_names: dict[str, str] = msgspec.field(
        default_factory=lambda: {
            "rknpu": names.RESOURCE_RKNPU,
            "rocket": names.RESOURCE_ROCKET,
            **names.RESOURCES_ASCEND,
        }
    )
    library: LibraryConfig = LibraryConfig()
    sharing: SharingConfig = SharingConfig()
    #: How devices reach a container: by path in the answer to the kubelet, or by CDI name.
    device_injection: DeviceInjection = "deviceSpecs"
    container_paths: ContainerPathsConfig = ContainerPathsConfig()
    #: More device nodes for every holder of an NPU, where the board has them.
    extra_devices: tuple[str, ...] = ()
    health: HealthConfig = HealthConfig()
    heat: HeatConfig = HeatConfig()
    ascend: AscendConfig = AscendConfig()
    #: When a device is warm, hot and critical; the same block as the guard's.
    thresholds: Settings = Settings()
    #: Time between two looks for devices that came or went.
    rescan_period_seconds: PositiveSeconds = 5.0
    #: How long the kubelet may take to watch the device list before the plugin registers anew.
    stream_timeout_seconds: PositiveSeconds = 10.0

    def __post_init__(self) -> None:
        """Check what types cannot say; raises ValueError naming the key."""
        for key, resource in self.resource_names.items():
            problem = resource_name_problem(resource)
            if problem is not None:
                raise ValueError(f"resourceNames.{key}: {resource!r} {problem}")
            problem = resource_name_problem(f"{resource}{SHARED_SUFFIX}")
            if self.sharing.resource_name == "shared" and problem is not None:
                raise ValueError(
                    f"sharing.resourceName: {resource!r} with {SHARED_SUFFIX!r} {problem}"
                )
        for position, path in enumerate(self.library.search_paths):
            if not is_plain_path(path):
                raise ValueError(
                    f"library.searchPaths[{position}]: {path!r} is not a plain absolute path"
                )
        for key, path in (
            *((f"extraDevices[{n}]", path) for n, path in enumerate(self.extra_devices)),
            *((f"containerPaths.{k}", path) for k, path in self.container_paths.by_role().items()),
        ):
            if not (path.startswith("/dev/") and is_plain_path(path)):
                raise ValueError(f"{key}: {path!r} is not a plain path below /dev/")
        self._check_pools()
        if self.heat.clamp_frequency and not self.heat.enabled:
            raise ValueError("heat.clampFrequency needs heat.enabled: it follows the same states")

    def _check_pools(self) -> None:
        sharing = self.sharing
        for position, device in enumerate(sharing.whole_devices):
            if not is_device_id(device):
                raise ValueError(
                    f"sharing.wholeDevices[{position}]: {device!r} is no device identifier "
                    "such as npu0"
                )
        if sharing.whole_devices and (sharing.slots == 1 or sharing.resource_name != "shared"):
            raise ValueError(
                "sharing.wholeDevices needs sharing.slots above 1 and sharing.resourceName shared, "
                "so that a request tells which pool it is for"
            )

    @property
    def names_devices(self) -> bool:
        """Whether the answer to Allocate names devices; claims have CDI files of their own."""
        return self.mode == "devicePlugin" and self.device_injection == "cdi"

    @property
    def policy(self) -> Sharing:
        """How NPUs are divided."""
        return Sharing(
            slots=self.sharing.slots,
            own_name=self.sharing.resource_name == "shared",
            whole=frozenset(self.sharing.whole_devices),
        )

    @property
    def pace(self) -> Pace:
        """How fast the limit of a warm device moves."""
        return Pace(
            lower_every_seconds=self.heat.lower_every_seconds,
            raise_every_seconds=self.heat.raise_every_seconds,
        )

    @property
    def resources(self) -> frozenset[str]:
        """Every name under which NPUs are offered, or were with another ``sharing``."""
        names_ = frozenset(self.resource_names.values())
        return names_ | {f"{name}{SHARED_SUFFIX}" for name in names_}


def resource_name_problem(resource: str) -> str | None:
    """Return why the kubelet would refuse a resource name, None where it accepts it.

    The rules are those of extended resources (``IsExtendedResourceName`` of Kubernetes).
    """
    if _RESOURCE.fullmatch(resource) is None:
        return "is not of the form domain/name"
    domain = resource.partition("/")[0]
    if domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
        return "is in the kubernetes.io domain, which Kubernetes keeps for itself"
    if resource.startswith("requests."):
        return "starts with requests., which quotas use"
    return None


def is_device_id(identifier: str) -> bool:
    """Tell whether ``identifier`` names a whole device."""
    try:
        return device_of(identifier) == identifier and slot_of(identifier) is None
    except ValueError:
        return False


def is_plain_path(path: str) -> bool:
    """Tell whether ``path`` is absolute, without ``..`` and odd characters."""
    return _PATH.fullmatch(path) is not None and not {".", ".."} & set(path.split("/"))

"""Turns a machine into a board description: ``python -m npu capture``.

Only files on a list are read, each once and at most a page of it, so that nothing private gets into
a description by being overlooked: no serial numbers, no command line, no addresses. What is read is
searched for such things all the same. Nothing here wakes the NPU, see :mod:`npu.drivers`. The
output is YAML of JSON scalars, written without any library: boards have a bare Python.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from npu import capture_ascend, devicetree, thermal
from npu.errors import BoardError, MissingError, NpuError
from npu.host import Host
from npu.model import Inventory
from npu.rockchip import is_npu
from npu.scan import scan
from npu.sysfs import compatibles, platform_device_paths, read_uevent

#: Bounds of a description; a board of the catalogue needs about a hundred files.
MAX_FILES = 2000
MAX_BYTES = 256 * 1024

_POWER = ("control", "runtime_status", "runtime_active_time", "runtime_suspended_time")
_DRIVER_FILES = ("version", "load", "power", "delayms", "reset")
_DEVFREQ = (
    *("name", "cur_freq", "target_freq", "min_freq", "max_freq", "available_frequencies"),
    *("governor", "available_governors", "load"),
)
#: Files that are read, as patterns; links on the way are kept.
_FILES = (
    "/sys/firmware/devicetree/base/compatible",
    "/sys/firmware/devicetree/base/model",
    "/sys/module/rknpu/version",
    *(f"/sys/kernel/debug/rknpu/{name}" for name in _DRIVER_FILES),
    *(f"/proc/rknpu/{name}" for name in _DRIVER_FILES),
    "/sys/class/misc/rknpu/dev",
    *(
        f"/sys/class/drm/{node}/{name}"
        for node in ("card?", "card??", "renderD*")
        for name in ("dev", "uevent", "device/uevent")
    ),
    *(f"/sys/class/accel/accel*/{name}" for name in ("dev", "uevent", "device/uevent")),
)
#: Links that are kept although nothing is read through them.
_LINKS = (
    "/sys/class/drm/card?/device/driver",
    "/sys/class/drm/renderD*/device/driver",
    "/sys/class/accel/accel*/device/driver",
    "/dev/dri/by-path/*",
    "/dev/dma_heap/*",
)
#: Device nodes whose numbers are kept; none is opened.
_NODES = (
    *("/dev/dri/card*", "/dev/dri/renderD*", "/dev/rknpu", "/dev/accel/accel*", "/dev/mali0"),
    *("/dev/dma_heap/*", "/dev/rk_dma_heap/*", "/dev/rga", "/dev/mpp_service"),
)
_SECRETS = (
    re.compile(r"\b(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}\b"),
    re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"),
    re.compile(r"\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b"),
    re.compile(r"\b(?=[0-9a-fA-F]*[a-fA-F])(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{16,}\b"),
)
#: YAML takes the two halves of a character, as JSON escapes it, for two characters.
_TO_ESCAPE = re.compile(r"[^ -~]")
_STRIPPED = "stripped"
_SHORTEST_SECRET = 4


@dataclass(slots=True)
class Capture:
    """What was read; paths are the board's, with links resolved.

    ``unread`` tells by path why a file is missing though it is there.
    """

    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)


class Camera:
    """Reads one board. ``secrets`` are words that must not appear in the output."""

    def __init__(self, host: Host, secrets: Iterable[str] = ()) -> None:
        self._host = host
        self._seen = Capture()
        self._bytes = 0
        known = " ".join(devicetree.board_compatible(host))
        self._words = [
            re.compile(rf"\b{re.escape(word)}\b")
            for word in secrets
            # A machine that is called like its board has no secret name.
            if len(word) >= _SHORTEST_SECRET and word not in known
        ]

    def take(self, *, ascend: bool = False) -> Capture:
        """Read everything on the list. Raises BoardError where that is too much for a board."""
        if ascend:
            self._ascend()
        for pattern in _FILES:
            self._each(pattern, self._file)
        self._npu_files()
        for driver in ("RKNPU", "rocket"):
            self._each(f"/sys/bus/platform/drivers/{driver}/*", self._follow)
        for pattern in _LINKS:
            self._each(pattern, self._follow)
        for pattern in _NODES:
            self._each(pattern, self._node)
        return self._seen

    def stripped(self, text: str) -> str:
        """Return ``text`` without what could identify a machine, a network or a person."""
        for pattern in (*_SECRETS, *self._words):
            text = pattern.sub(_STRIPPED, text)
        return text

    def _ascend(self) -> None:
        for pattern in capture_ascend.NODES:
            self._each(pattern, self._node)
        for path, content in capture_ascend.files(self._host):
            if content is None:
                self._file(path)
            else:
                self._seen.files[path] = content

    def _npu_files(self) -> None:
        """Read what belongs to NPUs only: other devices of the same kinds are left alone."""
        for device in self._npu_devices():
            for name in ("uevent", *(f"power/{entry}" for entry in _POWER)):
                self._file(f"{device}/{name}")
            self._follow(f"{device}/driver")
        for name in self._names("/sys/class/devfreq"):
            if self._is_npu(f"/sys/class/devfreq/{name}/device"):
                self._follow(f"/sys/class/devfreq/{name}/device")
                for entry in _DEVFREQ:
                    self._file(f"/sys/class/devfreq/{name}/{entry}")
        for node, _ in devicetree.nodes(self._host, is_npu):
            for name in ("compatible", "status"):
                self._file(f"{devicetree.BASE}{node}/{name}")

    def _npu_devices(self) -> list[str]:
        try:
            paths = platform_device_paths(self._host)
        except NpuError as error:
            self._seen.unread["/sys/bus/platform/devices"] = str(error)
            return []
        return [path for path in paths if self._is_npu(path)]

    def _is_npu(self, device: str) -> bool:
        try:
            return any(map(is_npu, compatibles(read_uevent(self._host, device))))
        except NpuError:
            return False

    def _names(self, directory: str) -> list[str]:
        try:
            return self._host.names(directory)
        except NpuError as error:
            self._seen.unread[directory] = str(error)
            return []

    def _each(self, pattern: str, act: Callable[[str], object]) -> None:
        for path in self._matching("", pattern.strip("/").split("/")):
            act(path)

    def _matching(self, base: str, parts: list[str]) -> Iterator[str]:
        if not parts:
            yield base
            return
        first, *rest = parts
        if not any(sign in first for sign in "*?"):
            yield from self._matching(f"{base}/{first}", rest)
            return
        for name in self._names(base):
            if fnmatchcase(name, first):
                yield from self._matching(f"{base}/{name}", rest)

    def _file(self, path: str) -> None:
        real = self._follow(path)
        if real in self._seen.files:
            return
        try:
            content = self._host.read(real).decode()
        except MissingError:
            return
        except (NpuError, UnicodeDecodeError) as error:
            self._seen.unread[real] = str(error)
            return
        self._seen.files[real] = self.stripped(content)
        self._bytes += len(real) + len(content)
        if len(self._seen.files) > MAX_FILES or self._bytes > MAX_BYTES:
            raise BoardError(f"more than {MAX_FILES} files or {MAX_BYTES} bytes: this is no board")

    def _node(self, path: str) -> None:
        real = self._follow(path)
        try:
            number = self._host.device_number(real)
        except NpuError:
            return
        if number is not None:
            self._seen.nodes[real] = f"{number[0]}:{number[1]}"

    def _follow(self, path: str) -> str:
        """Note the links on the way to ``path`` and return it with links resolved."""
        pending = [part for part in reversed(path.split("/")) if part]
        done: list[str] = []
        while pending:
            part = pending.pop()
            if part in (".", ".."):
                done = done[:-1] if part == ".." else done
                continue
            place = "/" + "/".join([*done, part])
            target = self._host.link_target(place)
            if target is None:
                done.append(part)
                continue
            if not self._host.exists(place):
                return place
            self._seen.links[place] = target
            if target.startswith("/"):
                done = []
            pending += [piece for piece in reversed(target.split("/")) if piece]
        return "/" + "/".join(done)


def describe(host: Host, name: str, secrets: Iterable[str] = ()) -> str:
    """Return the YAML of a board called ``name``; raises BoardError."""
    camera = Camera(host, secrets)
    inventory = scan(host)
    ascend = capture_ascend.present(host, inventory)
    seen = camera.take(ascend=ascend)
    model = devicetree.board_model(host)
    release = _text(host, "/proc/sys/kernel/osrelease")
    evidence = (
        f"Captured by python -m npu capture on kernel {release or 'not known'}. Read it before you "
        "publish it; add which image it is."
    )
    if seen.unread:
        evidence += " Could not be read: " + "; ".join(sorted(seen.unread.values())) + "."
    zones, unreadable = _zones(host)
    compatible = devicetree.board_compatible(host)
    # Both are in fields of their own.
    for own in ("compatible", "model"):
        seen.files.pop(f"{devicetree.BASE}/{own}", None)
    board: dict[str, object] = {
        "name": name,
        "title": camera.stripped(model or "a board without a model string"),
        "chip": compatible[-1].rpartition(",")[2].upper() if compatible else "not known",
        "kernel": camera.stripped(release or "not known"),
        "evidence": camera.stripped(evidence),
        "model": None if model is None else camera.stripped(model),
        "compatible": [camera.stripped(text) for text in compatible],
        "pci": capture_ascend.pci_devices(host) if ascend else {},
        "files": dict(sorted(seen.files.items())),
        "links": dict(sorted(seen.links.items())),
        "nodes": dict(sorted(seen.nodes.items())),
        "libraries": {
            library.path: library.version or "0.0.0"
            for npu in inventory.npus
            for library in npu.libraries
        },
        "zones": zones,
        "cooling": [
            {"type": cooling.type, "maximum_state": cooling.maximum_state, "state": cooling.state}
            for cooling in thermal.cooling_devices(host)
        ],
        "remove": unreadable,
        "simulation": _simulation(inventory, seen) or capture_ascend.simulation(inventory),
    }
    return _yaml({key: value for key, value in board.items() if value})


def _text(host: Host, path: str) -> str | None:
    try:
        return host.read_text(path).strip()
    except NpuError:
        return None


def _zones(host: Host) -> tuple[list[dict[str, object]], list[str]]:
    """Return the thermal zones, and the temperature files of those that cannot be read now."""
    found: list[dict[str, object]] = []
    unreadable: list[str] = []
    for index, zone in enumerate(thermal.zones(host)):
        try:
            millicelsius = thermal.millicelsius(host, zone)
        except NpuError:
            millicelsius = 0
            unreadable.append(f"/sys/devices/virtual/thermal/thermal_zone{index}/temp")
        trips = [{"kind": trip.kind, "millicelsius": trip.millicelsius} for trip in zone.trips]
        found.append({"type": zone.type, "millicelsius": millicelsius, "trips": trips})
    return found, unreadable


def _simulation(inventory: Inventory, seen: Capture) -> dict[str, object] | None:
    """Return how a simulator moves the board; heat is assumed to be that of a small board."""
    for npu in inventory.npus:
        if npu.cores is None or npu.vendor != "rockchip":
            continue
        units = [
            path.removesuffix("/power/runtime_active_time").rpartition("/")[2]
            for path in sorted(seen.files)
            if path.endswith("/power/runtime_active_time")
        ]
        return {
            "cores": npu.cores,
            "load": [path for path in sorted(seen.files) if path.endswith("rknpu/load")],
            "power": [path for path in sorted(seen.files) if path.endswith("rknpu/power")],
            "runtime": units if npu.load_is_estimate else [],
            "heating": {
                "idle_celsius": 6.0,
                "fast_celsius": 14.0,
                "fast_seconds": 9.0,
                "slow_celsius": 22.0,
                "slow_seconds": 200.0,
            },
        }
    return None


def _yaml(board: Mapping[str, object]) -> str:
    """Return a mapping as YAML, one line per entry; values are JSON, which YAML contains."""
    lines: list[str] = []
    for key, value in board.items():
        if isinstance(value, Mapping):
            lines.append(f"{key}:")
            lines += [f"  {_scalar(k)}: {_scalar(v)}" for k, v in value.items()]
        elif isinstance(value, list):
            lines.append(f"{key}:")
            lines += [f"  - {_scalar(item)}" for item in value]
        else:
            lines.append(f"{key}: {_scalar(value)}")
    return "\n".join(lines) + "\n"


def _scalar(value: object) -> str:
    """Return a value as JSON in ASCII that YAML reads as the same value."""
    text = json.dumps(value, ensure_ascii=False)
    return _TO_ESCAPE.sub(lambda found: f"\\U{ord(found[0]):08x}", text)

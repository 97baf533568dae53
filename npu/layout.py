"""From a board's description to the exact files, links and device nodes of its tree. Pure.

The shapes are those of sysfs: class directories hold links to devices, a bound device appears below
its driver, a DRM node's ``device`` leads to the device it hangs on.
"""

import posixpath
import re
import struct
from dataclasses import dataclass, field

from npu.catalogue import Board, Devfreq, Device, Pci, Zone
from npu.devicetree import BASE
from npu.errors import BoardError
from npu.names import SIMULATED_MARKER
from npu.smi_table import PROGRAM, PROGRAM_PATH, TABLE_PATH, ChipState, render

_DRM_MAJOR = 226
_ACCEL_MAJOR = 261
_TO_SYS = "../../.."
_MINOR = re.compile(r"(?<![0-9])[0-9]{1,7}$")
_NUMBER = re.compile(r"([0-9]{1,4}):([0-9]{1,7})")
_CHIP = re.compile(r"/dev/davinci[0-9]+")

DeviceNumber = tuple[int, int]


@dataclass(slots=True, kw_only=True)
class Tree:
    """The content of a board's tree; keys are absolute paths as the board sees them."""

    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, DeviceNumber] = field(default_factory=dict)


def expand(board: Board, device_number: DeviceNumber | None = None) -> Tree:
    """Return the tree of ``board``, marked as simulated.

    With ``device_number`` every device node gets this number, in ``/dev`` and in sysfs alike, so
    that a simulated tree never refers to a device of the machine it lies on. Raises BoardError.
    """
    try:
        return _expanded(board, device_number)
    except UnicodeEncodeError as error:
        raise BoardError(f"board {board.name}: {error}") from error


def _expanded(board: Board, device_number: DeviceNumber | None) -> Tree:
    tree = Tree()
    _identity(tree, board)
    for unit, device in board.devices.items():
        _device(tree, unit, device, device_number)
    for address, pci in board.pci.items():
        _pci(tree, address, pci)
    for name, number in board.misc.items():
        _misc(tree, name, device_number or parse_number(number))
    for path, number in board.nodes.items():
        tree.nodes[path] = device_number or parse_number(number)
    _thermal(tree, board)
    if board.simulation is not None and board.simulation.chips is not None:
        states = [ChipState(celsius=40.0, percent=0)] * chip_count(board)
        tree.files[PROGRAM_PATH] = PROGRAM
        tree.files[TABLE_PATH] = render(board.simulation.chips, states)
    for path, version in board.libraries.items():
        tree.files[path] = library_stub(path, version)
    tree.files.update({path: text.encode() for path, text in board.files.items()})
    if device_number is not None:
        _renumber(tree, board, device_number)
    tree.links.update(board.links)
    _remove(tree, board.remove)
    tree.files[SIMULATED_MARKER] = _line(board.name)
    _check(tree, board)
    return tree


def zone_temperature_path(index: int) -> str:
    """Return the file of a zone's temperature, links resolved."""
    return f"/sys/devices/virtual/thermal/thermal_zone{index}/temp"


def clock_path(unit: str) -> str:
    """Return the file of a device's current clock, links resolved."""
    return f"/sys/devices/platform/{unit}/devfreq/{unit}/cur_freq"


def runtime_files(unit: str, status: str, active: int, suspended: int) -> dict[str, bytes]:
    """Return the files of a device's runtime power management; times in milliseconds."""
    power = f"/sys/devices/platform/{unit}/power"
    return {
        f"{power}/runtime_status": _line(status),
        f"{power}/runtime_active_time": _line(active),
        f"{power}/runtime_suspended_time": _line(suspended),
    }


def chip_count(board: Board) -> int:
    """Return the number of Ascend chips of a board, which are numbered from 0 on."""
    return sum(_CHIP.fullmatch(path) is not None for path in board.nodes)


def parse_number(text: str) -> DeviceNumber:
    """Return (major, minor) of ``226:1``; raises BoardError."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise BoardError(f"{text!r} is not a device number such as 226:1")
    return int(match[1]), int(match[2])


def library_stub(path: str, version: str) -> bytes:
    """Return an aarch64 shared library without any code that carries a version as text."""
    name = path.rsplit("/", maxsplit=1)[-1].removeprefix("lib").removesuffix(".so")
    identification = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = identification + struct.pack(
        "<HHIQQQIHHHHHH", 3, 183, 1, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0
    )
    text = f"lib{name} version: {version} (0000000000@2025-01-01T00:00:00)"
    return header + text.encode() + b"\0"


def _check(tree: Tree, board: Board) -> None:
    written = () if board.simulation is None else (*board.simulation.load, *board.simulation.power)
    for path in (*tree.files, *tree.links, *tree.nodes, *written):
        if not _is_path(path):
            raise BoardError(f"board {board.name}: {path!r} is not a path of the board")
    for path, target in tree.links.items():
        if not target or "\0" in target:
            raise BoardError(f"board {board.name}: the link {path} leads to {target!r}")


def _is_path(path: str) -> bool:
    """Tell whether ``path`` is the one way to write an absolute path of a file."""
    plain = path.startswith("/") and not path.startswith("//") and "\0" not in path
    return plain and path != "/" and posixpath.normpath(path) == path


def _identity(tree: Tree, board: Board) -> None:
    if board.compatible:
        tree.files[f"{BASE}/compatible"] = _strings(board.compatible)
        tree.links["/proc/device-tree"] = f"..{BASE}"
    if board.model is not None:
        tree.files[f"{BASE}/model"] = _strings((board.model,))


def _device(tree: Tree, unit: str, device: Device, number: DeviceNumber | None) -> None:
    path = f"/sys/devices/platform/{unit}"
    tree.links[f"/sys/bus/platform/devices/{unit}"] = f"{_TO_SYS}/devices/platform/{unit}"
    tree.files[f"{path}/uevent"] = _uevent(device)
    if device.driver is not None:
        driver = f"/sys/bus/platform/drivers/{device.driver}"
        tree.links[f"{driver}/{unit}"] = f"../../../../devices/platform/{unit}"
        tree.links[f"{path}/driver"] = f"{_TO_SYS}/bus/platform/drivers/{device.driver}"
    if device.node is not None and device.described:
        tree.files[f"{BASE}{device.node}/compatible"] = _strings(device.compatible)
        tree.links[f"{path}/of_node"] = f"{_TO_SYS}/firmware/devicetree/base{device.node}"
    for name in device.drm:
        _drm(tree, unit, name, number)
    for name in device.accel:
        _accel(tree, unit, name, number)
    if device.power is not None:
        files = runtime_files(
            unit,
            device.power.status,
            device.power.active_milliseconds,
            device.power.suspended_milliseconds,
        )
        tree.files |= files | {f"{path}/power/control": _line(device.power.control)}
    if device.devfreq is not None:
        _devfreq(tree, unit, device.devfreq)


def _pci(tree: Tree, address: str, device: Pci) -> None:
    path = "/".join(["/sys/devices", *device.bridges, address])
    tree.links[f"/sys/bus/pci/devices/{address}"] = f"{_TO_SYS}{path.removeprefix('/sys')}"
    values = {
        "vendor": device.vendor,
        "device": device.device,
        "class": device.device_class,
        "numa_node": device.numa_node,
        **device.attributes,
    }
    tree.files.update({f"{path}/{name}": _line(value) for name, value in values.items()})
    if device.driver is not None:
        driver = f"/sys/bus/pci/drivers/{device.driver}"
        up = "/".join([".."] * (path.count("/") - 1))
        tree.links[f"{path}/driver"] = f"{up}{driver.removeprefix('/sys')}"
        tree.links[f"{driver}/{address}"] = f"{_TO_SYS}/..{path.removeprefix('/sys')}"


def _drm(tree: Tree, unit: str, name: str, given: DeviceNumber | None) -> None:
    number = given or (_DRM_MAJOR, _minor(name))
    _node(tree, unit, ("drm", "dri", name), number, "drm_minor")
    role = "render" if name.startswith("renderD") else "card"
    tree.links[f"/dev/dri/by-path/platform-{unit}-{role}"] = f"../{name}"


def _accel(tree: Tree, unit: str, name: str, given: DeviceNumber | None) -> None:
    number = given or (_ACCEL_MAJOR, _minor(name))
    _node(tree, unit, ("accel", "accel", name), number, "accel_minor")


def _node(
    tree: Tree, unit: str, where: tuple[str, str, str], number: DeviceNumber, kind: str
) -> None:
    """Add a device node: ``where`` is its class, its folder in ``/dev`` and its name."""
    of_class, folder, name = where
    path = f"/sys/devices/platform/{unit}/{of_class}/{name}"
    tree.links[f"/sys/class/{of_class}/{name}"] = _from_class(path)
    tree.links[f"{path}/device"] = f"../../../{unit}"
    tree.files[f"{path}/dev"] = _line(f"{number[0]}:{number[1]}")
    tree.files[f"{path}/uevent"] = _node_uevent(f"{folder}/{name}", number, kind)
    tree.nodes[f"/dev/{folder}/{name}"] = number


def _minor(name: str) -> int:
    minor = _MINOR.search(name)
    if minor is None:
        raise BoardError(f"{name!r} is not the name of a device node")
    return int(minor[0])


def _misc(tree: Tree, name: str, number: DeviceNumber) -> None:
    path = f"/sys/devices/virtual/misc/{name}"
    tree.links[f"/sys/class/misc/{name}"] = _from_class(path)
    tree.files[f"{path}/dev"] = _line(f"{number[0]}:{number[1]}")
    tree.files[f"{path}/uevent"] = _node_uevent(name, number, None)
    tree.nodes[f"/dev/{name}"] = number


def _devfreq(tree: Tree, unit: str, devfreq: Devfreq) -> None:
    path = f"/sys/devices/platform/{unit}/devfreq/{unit}"
    tree.links[f"/sys/class/devfreq/{unit}"] = _from_class(path)
    tree.links[f"{path}/device"] = f"../../../{unit}"
    available = devfreq.available or (devfreq.current,)
    values: dict[str, object] = {
        "name": unit,
        "cur_freq": devfreq.current,
        "target_freq": devfreq.current,
        "min_freq": min(available) if devfreq.minimum is None else devfreq.minimum,
        "max_freq": max(available) if devfreq.maximum is None else devfreq.maximum,
        "available_frequencies": " ".join(map(str, available)),
        "governor": devfreq.governor,
        "available_governors": " ".join(devfreq.governors),
        # A constant of the vendor kernel; a reader that takes it for load is wrong.
        "load": f"100@{devfreq.current}Hz",
    }
    tree.files[f"{path}/uevent"] = b""
    tree.files.update({f"{path}/{name}": _line(value) for name, value in values.items()})


def _thermal(tree: Tree, board: Board) -> None:
    for index, zone in enumerate(board.zones):
        _zone(tree, index, zone)
    for index, cooling in enumerate(board.cooling):
        path = f"/sys/devices/virtual/thermal/cooling_device{index}"
        tree.links[f"/sys/class/thermal/cooling_device{index}"] = _from_class(path)
        tree.files[f"{path}/type"] = _line(cooling.type)
        tree.files[f"{path}/cur_state"] = _line(cooling.state)
        tree.files[f"{path}/max_state"] = _line(cooling.maximum_state)


def _zone(tree: Tree, index: int, zone: Zone) -> None:
    path = f"/sys/devices/virtual/thermal/thermal_zone{index}"
    tree.links[f"/sys/class/thermal/thermal_zone{index}"] = _from_class(path)
    tree.files[f"{path}/type"] = _line(zone.type)
    tree.files[zone_temperature_path(index)] = _line(zone.millicelsius)
    for number, trip in enumerate(zone.trips):
        tree.files[f"{path}/trip_point_{number}_type"] = _line(trip.kind)
        tree.files[f"{path}/trip_point_{number}_temp"] = _line(trip.millicelsius)


def _uevent(device: Device) -> bytes:
    if not device.uevent:
        return b""
    lines: list[str] = []
    if device.driver is not None:
        lines.append(f"DRIVER={device.driver}")
    if device.node is not None:
        name = device.node.rsplit("/", maxsplit=1)[-1].split("@", maxsplit=1)[0]
        lines += [f"OF_NAME={name}", f"OF_FULLNAME={device.node}"]
        lines += [f"OF_COMPATIBLE_{n}={text}" for n, text in enumerate(device.compatible)]
        lines.append(f"OF_COMPATIBLE_N={len(device.compatible)}")
        lines.append(f"MODALIAS=of:N{name}T(null)" + "".join(f"C{c}" for c in device.compatible))
    elif device.modalias is not None:
        lines.append(f"MODALIAS={device.modalias}")
    return "".join(f"{line}\n" for line in lines).encode()


def _node_uevent(name: str, number: DeviceNumber, kind: str | None) -> bytes:
    text = f"MAJOR={number[0]}\nMINOR={number[1]}\nDEVNAME={name}\n"
    return (text if kind is None else f"{text}DEVTYPE={kind}\n").encode()


def _from_class(path: str) -> str:
    """Return the link of an entry of ``/sys/class/<class>`` to a device below ``/sys/devices``."""
    return f"../..{path.removeprefix('/sys')}"


def _renumber(tree: Tree, board: Board, number: DeviceNumber) -> None:
    """Give the device numbers that a captured board states in sysfs the number of the nodes."""
    for path, text in board.files.items():
        if path.endswith("/dev") and _NUMBER.fullmatch(text.strip()):
            tree.files[path] = _line(f"{number[0]}:{number[1]}")


def _remove(tree: Tree, prefixes: tuple[str, ...]) -> None:
    def kept(path: str) -> bool:
        return not any(path == prefix or path.startswith(f"{prefix}/") for prefix in prefixes)

    tree.files = {path: content for path, content in tree.files.items() if kept(path)}
    tree.links = {path: target for path, target in tree.links.items() if kept(path)}
    tree.nodes = {path: number for path, number in tree.nodes.items() if kept(path)}


def _strings(values: tuple[str, ...]) -> bytes:
    return b"".join(value.encode() + b"\0" for value in values)


def _line(value: object) -> bytes:
    return f"{value}\n".encode()

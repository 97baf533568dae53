"""The catalogue of boards as data: what each board's file tree looks like, and on what evidence.

A board is one YAML file in ``npu/boards``. It may extend another one: mappings are merged, a null
removes an entry, and ``remove`` takes away whole subtrees. The same descriptions serve the tests,
the demonstration and the simulator.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import msgspec
import yaml

from npu.errors import BoardError

CATALOGUE = Path(__file__).parent / "boards"
_MAX_DEPTH = 4
#: A board comes from whoever sent it; a capture has at most 256 KiB of files.
_LIMIT_BYTES = 2 << 20
#: A board's name is a file's name: never a path, nor longer than a file system takes.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the records of a board file: read-only and strict."""


class Devfreq(_Record, frozen=True):
    """A devfreq entry, hertz; ``maximum`` and ``minimum`` default to the ends of ``available``."""

    current: int
    available: tuple[int, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    governor: str = "rknpu_ondemand"
    governors: tuple[str, ...] = ("rknpu_ondemand", "dmc_ondemand", "simple_ondemand")


class RuntimePower(_Record, frozen=True):
    """Runtime power management of a device; times are milliseconds since boot."""

    status: str
    active_milliseconds: int
    suspended_milliseconds: int
    control: str = "auto"


class Device(_Record, frozen=True):
    """A platform device; without ``driver`` it is unbound.

    ``drm`` and ``accel`` are names of its device nodes. ``modalias`` is that of a device without a
    ``node`` in the device tree. ``uevent`` False writes an empty uevent.
    """

    node: str | None = None
    compatible: tuple[str, ...] = ()
    driver: str | None = None
    modalias: str | None = None
    drm: tuple[str, ...] = ()
    accel: tuple[str, ...] = ()
    devfreq: Devfreq | None = None
    power: RuntimePower | None = None
    described: bool = True
    uevent: bool = True


class Pci(_Record, frozen=True):
    """A PCI device; numbers as sysfs prints them. ``bridges`` lead to it, outermost first.

    ``attributes`` are further files of the device, by name.
    """

    vendor: str
    device: str
    bridges: tuple[str, ...]
    device_class: str = "0x120000"
    driver: str | None = None
    numa_node: int = -1
    attributes: dict[str, str] = {}


class Trip(_Record, frozen=True):
    """A trip point of a zone."""

    kind: str
    millicelsius: int


class Zone(_Record, frozen=True):
    """A thermal zone; ``coupling`` is the share of the NPU's heat that its sensor sees."""

    type: str
    millicelsius: int
    trips: tuple[Trip, ...] = ()
    coupling: float = 0.9


class Cooling(_Record, frozen=True):
    """A cooling device."""

    type: str
    maximum_state: int
    state: int = 0


class Governor(_Record, frozen=True):
    """The kernel's cap: above ``cap_celsius`` the clock is ``capped_hertz`` until it cooled.

    ``capped_power_ratio`` is the heat at the capped clock and voltage, relative to full.
    """

    cap_celsius: float
    release_celsius: float
    capped_hertz: int
    capped_power_ratio: float


class Heating(_Record, frozen=True):
    """Thermal behaviour at full load: a fast part (chip) and a slow one (heat sink, case).

    ``idle_celsius`` is the rise above ambient without load.
    """

    idle_celsius: float
    fast_celsius: float
    fast_seconds: float
    slow_celsius: float
    slow_seconds: float
    governor: Governor | None = None


class Chips(_Record, frozen=True):
    """Ascend chips as their tool shows them; ``per_card`` of them are on a card.

    ``first_npu_id`` is the tool's number of the first card.
    """

    name: str
    version: str
    memory_megabytes: int
    idle_watts: float
    busy_watts: float
    hbm_megabytes: int = 0
    first_npu_id: int = 0
    per_card: int = 1


class Simulation(_Record, frozen=True):
    """What a simulator writes into the tree while it runs; paths are the board's.

    ``load`` and ``power`` are files of the vendor driver. ``runtime`` are the units, one per core,
    whose active time tells the load instead. ``chips`` describes Ascend chips, each of which is
    loaded and heats up by itself.
    """

    heating: Heating
    cores: int = 1
    load: tuple[str, ...] = ()
    power: tuple[str, ...] = ()
    runtime: tuple[str, ...] = ()
    clock: str | None = None
    chips: Chips | None = None


class Board(_Record, frozen=True):
    """A board. See the fields' use in :mod:`npu.layout`.

    ``evidence`` names the sources of what the file says, and what is assumed. ``chip`` and
    ``kernel`` are for people: the printed name of the chip, and which kernel with which driver.
    """

    name: str
    title: str
    evidence: str
    chip: str | None = None
    kernel: str | None = None
    model: str | None = None
    compatible: tuple[str, ...] = ()
    devices: dict[str, Device] = {}
    pci: dict[str, Pci] = {}
    misc: dict[str, str] = {}
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    nodes: dict[str, str] = {}
    libraries: dict[str, str] = {}
    zones: tuple[Zone, ...] = ()
    cooling: tuple[Cooling, ...] = ()
    remove: tuple[str, ...] = ()
    simulation: Simulation | None = None


def names(directory: Path = CATALOGUE) -> list[str]:
    """Return the names of the boards in ``directory``."""
    return sorted(path.stem for path in directory.glob("*.yaml"))


def load(name: str, directory: Path = CATALOGUE) -> Board:
    """Read the board ``name``; raises BoardError naming the file and the fault.

    A board outside the catalogue may extend one inside it.
    """
    return from_data(name, _read(name, directory)[1], directory)


def from_data(name: str, data: Mapping[str, object], directory: Path = CATALOGUE) -> Board:
    """Return the board that ``data`` describes, with what it extends; raises BoardError."""
    try:
        data = _extended(data, directory, _MAX_DEPTH)
        data.pop("extends", None)
        board = msgspec.convert(data, Board, strict=True)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BoardError(f"board {name}: {error}") from error
    if board.name != name:
        raise BoardError(f"board {name}: the file says its name is {board.name!r}")
    return board


def _merged(name: str, directory: Path, depth: int) -> dict[str, object]:
    path, data = _read(name, directory)
    if depth == 0:
        raise BoardError(f"{path}: too many boards extend each other")
    return _extended(data, directory, depth)


def _read(name: str, directory: Path) -> tuple[Path, dict[str, object]]:
    if not _NAME.fullmatch(name):
        raise BoardError(
            f"{name[:80]!r} cannot be the name of a board: up to 63 letters, digits, '.', '_', '-'"
        )
    path = directory / f"{name}.yaml"
    if not path.is_file():
        path = CATALOGUE / f"{name}.yaml"
    try:
        with path.open("rb") as file:
            content = file.read(_LIMIT_BYTES + 1)
        if len(content) > _LIMIT_BYTES:
            raise BoardError(f"{path}: more than {_LIMIT_BYTES} bytes are no board")
        data: object = yaml.safe_load(content.decode())
    except FileNotFoundError as error:
        known = ", ".join(names(directory))
        raise BoardError(f"no board {name!r}; there are {known}") from error
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        # Dates and numbers that are none are a ValueError of the constructors behind YAML.
        raise BoardError(f"{path}: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise BoardError(f"{path}: not a mapping")
    return path, cast("dict[str, object]", data)


def _extended(data: Mapping[str, object], directory: Path, depth: int) -> dict[str, object]:
    base = data.get("extends")
    if base is None:
        return dict(data)
    return _overlay(_merged(str(base), directory, depth - 1), data)


def _overlay(base: Mapping[str, object], change: Mapping[str, object]) -> dict[str, object]:
    result = dict(base)
    for key, value in change.items():
        old = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(old, dict):
            result[key] = _overlay(old, value)
        else:
            result[key] = value
    return result

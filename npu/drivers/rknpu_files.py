"""What the vendor driver writes in its files, and nothing else.

The driver creates the same files in debugfs (``/sys/kernel/debug/rknpu``, usual, root only) and in
procfs (``/proc/rknpu``, rarely built, world-readable); ``drivers/rknpu/rknpu_debugger.c`` of
Rockchip's kernel. Only ``load``, ``version`` and ``power`` are read here: reading ``freq`` powers
the NPU on, and reading ``volt`` crashes kernels of boards without a regulator.
"""

import re

from npu.errors import DeniedError, ImplausibleError, MissingError, ReadError
from npu.host import Host
from npu.model import CoreLoad

DEBUGFS = "/sys/kernel/debug/rknpu"
PROCFS = "/proc/rknpu"
MODULE_VERSION = "/sys/module/rknpu/version"

_PREFIX = "NPU load:"
_CORES = re.compile(r"(?:\s*Core[0-9]{1,3}:\s*[0-9]{1,10}\s*%,?)+\s*")
_CORE = re.compile(r"Core([0-9]+):\s*([0-9]+)")
_SINGLE = re.compile(r"\s*([0-9]{1,10})\s*%\s*")
_VERSION = re.compile(r"(?<![0-9.])v?([0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,6})\b")
_FULL_PERCENT = 100
#: Ten times as many as any chip has; more is no NPU of this family.
_MOST_CORES = 32
#: The first version whose driver creates files; 0.6.4 has none, 0.7.2 does.
_FIRST_WITH_FILES = (0, 7)


def parse_load(text: str, path: str = "load") -> tuple[CoreLoad, ...]:
    """Parse the content of ``load``: busy share of each core in the previous whole second.

    ``NPU load:  Core0:  0%, Core1:  7%,`` or, with one core, ``NPU load: 48%``. Drivers before 0.9
    overflow; more than 100 % is taken as 100 % and marked as clamped. Raises ImplausibleError for
    everything else: a line that is cut or blank is never a smaller number of cores, nor 0.
    """
    line = text.removesuffix("\n")
    rest = line.removeprefix(_PREFIX)
    if rest != line and "\n" not in rest:
        single = _SINGLE.fullmatch(rest)
        if single is not None:
            return (_core_load(0, int(single[1])),)
        if _CORES.fullmatch(rest):
            pairs = [(int(match[1]), int(match[2])) for match in _CORE.finditer(rest)]
            numbers = [core for core, _ in pairs]
            if len(pairs) <= _MOST_CORES and numbers == list(range(len(pairs))):
                return tuple(_core_load(core, percent) for core, percent in pairs)
    raise ImplausibleError(path, text, "'NPU load:' and a percentage per core")


def _core_load(core: int, percent: int) -> CoreLoad:
    return CoreLoad(
        core=core,
        ratio=min(percent, _FULL_PERCENT) / _FULL_PERCENT,
        clamped=percent > _FULL_PERCENT,
    )


def parse_version(text: str, path: str = "version") -> str:
    """Return ``0.9.8`` from ``RKNPU driver: v0.9.8`` or ``0.9.8``; raises ImplausibleError."""
    match = _VERSION.search(text)
    if match is None:
        raise ImplausibleError(path, text, "a version such as 0.9.8")
    return match[1]


def precedes_files(version: str | None) -> bool:
    """Tell whether a driver of this version is too old to have files, by design without load."""
    if version is None:
        return False
    return tuple(map(int, version.split(".")[:2])) < _FIRST_WITH_FILES


def read_load(host: Host) -> tuple[CoreLoad, ...]:
    """Read ``load``; raises ReadError or ImplausibleError."""
    path, text = _read(host, "load")
    return parse_load(text, path)


def read_powered(host: Host) -> bool:
    """Read ``power``: whether the NPU's power domain is held on; ``off`` is the normal idle state.

    Raises ReadError or ImplausibleError.
    """
    path, text = _read(host, "power")
    states = {"on": True, "off": False}
    if text.strip() not in states:
        raise ImplausibleError(path, text, "on or off")
    return states[text.strip()]


def read_version(host: Host) -> str:
    """Read the driver's version; built-in drivers have ``/sys/module/rknpu/version`` too.

    Raises ReadError or ImplausibleError.
    """
    try:
        return parse_version(host.read_text(MODULE_VERSION), MODULE_VERSION)
    except (ReadError, ImplausibleError):
        path, text = _read(host, "version")
        return parse_version(text, path)


def _read(host: Host, name: str) -> tuple[str, str]:
    """Read a driver file from debugfs, else from procfs; the first failure is the one raised."""
    first = f"{DEBUGFS}/{name}"
    try:
        return first, host.read_text(first)
    except (MissingError, DeniedError) as error:
        second = f"{PROCFS}/{name}"
        try:
            return second, host.read_text(second)
        except MissingError:
            raise error from None

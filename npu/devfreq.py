"""Clock of a device from devfreq (``/sys/class/devfreq/<unit>/``, hertz).

``cur_freq`` is a cached value: reading it does not touch the hardware. Idle does not lower it, and
some kernels print 0 for a device that never ran. An entry belongs to the device that its ``device``
link leads to: entries called ``<address>.npu`` exist on boards of other makers as well.
"""

from collections.abc import Callable

from npu.errors import NpuError
from npu.host import Host, decimal
from npu.model import Clock
from npu.sysfs import compatibles, read_uevent

CLASS = "/sys/class/devfreq"


def clock(host: Host, unit: str, accepts: Callable[[str], bool]) -> Clock:
    """Return the clock of ``unit`` if a compatible string of its device is one that ``accepts``."""
    entry = _entry(host, unit, accepts)
    if entry is None:
        return Clock()
    available = _available(host, entry)
    return Clock(
        current_hertz=_hertz(host, f"{entry}/cur_freq"),
        minimum_hertz=_hertz(host, f"{entry}/min_freq"),
        maximum_hertz=_hertz(host, f"{entry}/max_freq"),
        hardware_maximum_hertz=max(available, default=None),
    )


def _entry(host: Host, unit: str, accepts: Callable[[str], bool]) -> str | None:
    try:
        names = host.names(CLASS)
    except NpuError:
        return None
    for name in names:
        entry = f"{CLASS}/{name}"
        try:
            if host.real_path(f"{entry}/device").rsplit("/", maxsplit=1)[-1] != unit:
                continue
            if any(map(accepts, compatibles(read_uevent(host, f"{entry}/device")))):
                return entry
        except NpuError:
            continue
    return None


def _hertz(host: Host, path: str) -> int | None:
    try:
        value = host.read_integer(path)
    except NpuError:
        return None
    return value if value > 0 else None


def _available(host: Host, entry: str) -> list[int]:
    try:
        words = host.read_text(f"{entry}/available_frequencies").split()
    except NpuError:
        return []
    return [value for value in map(decimal, words) if value is not None and value > 0]

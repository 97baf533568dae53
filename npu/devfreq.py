"""Clock of a device from devfreq (``/sys/class/devfreq/<unit>/``, hertz).

``cur_freq`` is a cached value: reading it does not touch the hardware. Idle does not lower it, and
some kernels print 0 for a device that never ran. An entry belongs to the device that its ``device``
link leads to: entries called ``<address>.npu`` exist on boards of other makers as well.
"""

from collections.abc import Callable
from dataclasses import dataclass

from npu.errors import NpuError
from npu.host import Host, decimal
from npu.model import Clock
from npu.sysfs import compatibles, read_uevent

CLASS = "/sys/class/devfreq"

#: Ten times the fastest NPU of this kind; more is a number that no clock made.
HIGHEST_HERTZ = 10_000_000_000


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The upper limit of a clock in hertz, the steps below it, and the file that holds it."""

    path: str
    maximum_hertz: int
    steps_hertz: tuple[int, ...]


def limit(host: Host, unit: str, accepts: Callable[[str], bool]) -> Limit | None:
    """Return the limit of ``unit``, None where it has none that can be read.

    The path has its links resolved, as the board sees it. Nothing here writes to it.
    """
    entry = _entry(host, unit, accepts)
    if entry is None:
        return None
    maximum = _hertz(host, f"{entry}/max_freq")
    if maximum is None:
        return None
    try:
        path = host.real_path(f"{entry}/max_freq")
    except NpuError:
        return None
    return Limit(path=path, maximum_hertz=maximum, steps_hertz=tuple(_available(host, entry)))


def _entry(host: Host, unit: str, accepts: Callable[[str], bool]) -> str | None:
    try:
        names = host.names(CLASS)
    except NpuError:
        return None
    # An entry is usually called like its device; on a board with many, looking at all is slow.
    for name in sorted(names, key=lambda name: name != unit):
        entry = f"{CLASS}/{name}"
        try:
            device = host.real_path(f"{entry}/device")
            if device.rsplit("/", maxsplit=1)[-1] != unit:
                continue
            if any(map(accepts, compatibles(read_uevent(host, device)))):
                # Where the entry really is: nothing of the way is to be resolved again.
                return host.real_path(entry)
        except NpuError:
            continue
    return None


def _hertz(host: Host, path: str) -> int | None:
    try:
        value = host.read_integer(path)
    except NpuError:
        return None
    return value if _is_clock(value) else None


def _available(host: Host, entry: str) -> list[int]:
    try:
        words = host.read_text(f"{entry}/available_frequencies").split()
    except NpuError:
        return []
    return [value for value in map(decimal, words) if value is not None and _is_clock(value)]


def _is_clock(hertz: int) -> bool:
    return 0 < hertz <= HIGHEST_HERTZ

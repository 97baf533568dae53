"""Lowers the clock of a hot NPU: the one thing of a board that the plugin ever writes.

Off by default, as some ports of the driver hang on a write to devfreq's ``max_freq``. A hang is
kept from the rest of the plugin, and nothing is written after one. What the limit was is noted in a
file before it is changed: a plugin that was killed gives it back at its next start. The file lies
where a reboot, which resets the limit, removes it.
"""

import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from daemon.logs import fields
from npu import devfreq, rockchip
from npu.devfreq import Limit
from npu.heat import OVERHEATED, Heat
from npu.host import Host
from npu.model import Npu

log = logging.getLogger(__name__)

DEFAULT_DIRECTORY: Final = "/run/npu-platform"
FILE_NAME: Final = "clamp.json"
WRITE_SECONDS: Final = 5.0
#: Below hot for good; while it recovers, or while its heat is not known, nothing changes.
_RELEASED: Final = frozenset({Heat.COOL, Heat.WARM})


class ClampError(Exception):
    """The limit could not be written or did not take effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A limit of ours: what ``max_freq`` was, and what it was lowered to, in hertz."""

    original_hertz: int
    clamped_hertz: int


def wanted(state: Heat, *, clamped: bool) -> bool:
    """Tell whether a device in ``state`` should be clamped. Pure."""
    if state in OVERHEATED:
        return True
    return False if state in _RELEASED else clamped


def target_hertz(available: Iterable[int], maximum_hertz: int, ratio: float) -> int | None:
    """Return the step to clamp to, None where none is lower than the limit in force. Pure.

    The highest step within ``ratio`` of the highest there is, else the lowest.
    """
    steps = sorted(available)
    if not steps:
        return None
    within = [step for step in steps if step <= ratio * steps[-1]]
    target = within[-1] if within else steps[0]
    return target if target < maximum_hertz else None


def write(path: str, hertz: int, *, seconds: float = WRITE_SECONDS) -> None:
    """Write a limit in bounded time. Raises ClampError; a hanging write keeps its thread."""
    outcome: list[OSError | None] = []

    def attempt() -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_TRUNC)
            try:
                os.write(descriptor, b"%d\n" % hertz)
            finally:
                os.close(descriptor)
            outcome.append(None)
        except OSError as error:
            outcome.append(error)

    thread = threading.Thread(target=attempt, name="clamp", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise ClampError(f"{path}: the write does not return: heat.clampFrequency is not for it")
    error = outcome[0]
    if error is not None:
        raise ClampError(f"{path}: {error.strerror} ({error.errno})")


class Clamp:
    """Clamps and releases the devices of this board; a service whose stop releases them.

    ``write_limit`` takes a path as this process sees it; a parameter for tests.
    """

    def __init__(
        self,
        host: Host,
        directory: Path,
        *,
        ratio: float,
        write_limit: Callable[[str, int], None] = write,
    ) -> None:
        self._host = host
        self._file = directory / FILE_NAME
        self._ratio = ratio
        self._write = write_limit
        self._lock = threading.Lock()
        self._held: dict[str, Held] = {}
        self._stopped = False
        self.problems: dict[str, str] = {}
        self.failures = 0

    def start(self) -> None:
        """Give back what an earlier process of the plugin left clamped."""
        with self._lock:
            self._held = self._noted()
            for unit in list(self._held):
                log.warning("Found a clock limit of a plugin that was killed", extra=_unit(unit))
                self._release(unit)

    def step(self, npus: Mapping[str, Npu], states: Mapping[str, Heat]) -> None:
        """Clamp what is hot and release what is not, by device identifier."""
        with self._lock:
            # A look that was under way when the plugin was told to end must not clamp anew.
            for identifier, state in () if self._stopped else states.items():
                unit = npus[identifier].unit
                clamped = unit in self._held
                if unit in self.problems or wanted(state, clamped=clamped) == clamped:
                    continue
                if clamped:
                    self._release(unit)
                else:
                    self._clamp(unit)

    def clamped(self, npu: Npu) -> Held | None:
        """Return the limit in force on a device, None where it is not ours."""
        return self._held.get(npu.unit)

    def stop(self) -> None:
        """Release every device."""
        with self._lock:
            self._stopped = True
            for unit in list(self._held):
                self._release(unit)

    def _clamp(self, unit: str) -> None:
        limit = self._limit(unit)
        if limit is None:
            self._failed(unit, "no devfreq entry with available_frequencies and max_freq")
            return
        target = target_hertz(limit.steps_hertz, limit.maximum_hertz, self._ratio)
        if target is None:
            return
        self._held[unit] = Held(original_hertz=limit.maximum_hertz, clamped_hertz=target)
        try:
            self._note()
            self._set(unit, target)
        except (OSError, ClampError) as error:
            self._failed(unit, str(error))
            return
        log.warning("Clamped the clock of a hot NPU", extra=_unit(unit, hertz=target))

    def _release(self, unit: str) -> None:
        held = self._held[unit]
        try:
            # Somebody else's limit is theirs: an administrator's, or a reboot's.
            limit = self._limit(unit)
            if limit is not None and limit.maximum_hertz == held.clamped_hertz:
                self._set(unit, held.original_hertz)
            del self._held[unit]
            self._note()
        except (OSError, ClampError) as error:
            self._failed(unit, str(error))
            return
        log.info("Released the clock", extra=_unit(unit, hertz=held.original_hertz))

    def _limit(self, unit: str) -> Limit | None:
        return devfreq.limit(self._host, unit, rockchip.is_npu)

    def _set(self, unit: str, hertz: int) -> None:
        limit = self._limit(unit)
        if limit is None:
            raise ClampError(f"the devfreq entry of {unit} is gone")
        self._write(f"{self._host.root}{limit.path}", hertz)
        after = self._limit(unit)
        if after is None or after.maximum_hertz != hertz:
            raise ClampError(f"{limit.path}: the kernel did not take {hertz}")

    def _failed(self, unit: str, problem: str) -> None:
        """Give up on a device: a port that refuses or hangs does so every time."""
        self.failures += 1
        self.problems[unit] = problem
        log.error("Cannot change the clock limit; not tried again", extra=_unit(unit, why=problem))

    def _note(self) -> None:
        if not self._held:
            self._file.unlink(missing_ok=True)
            return
        data = {
            unit: [held.original_hertz, held.clamped_hertz] for unit, held in self._held.items()
        }
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(data))
        part.rename(self._file)

    def _noted(self) -> dict[str, Held]:
        try:
            data = json.loads(self._file.read_text())
            return {
                str(unit): Held(original_hertz=int(original), clamped_hertz=int(clamped))
                for unit, (original, clamped) in data.items()
            }
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            log.warning(
                "The note of clock limits cannot be read",
                extra=fields(path=self._file, error=error),
            )
            return {}


def _unit(unit: str, **more: object) -> dict[str, Mapping[str, object]]:
    return fields(unit=unit, **more)

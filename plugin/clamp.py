"""Lowers the clock of a warm NPU: the one thing of a board that the plugin ever writes.

The clock moves through the driver's table by the law of the slots (:func:`plugin.limiter.advance`):
a step down every 30 s while it gets crowded, a step up every 120 s while it is cool, the lowest at
once when hot. A whole device so finds the clock that its board can cool, as a shared one finds the
number of slots. One clamp to a fixed clock at hot was tried in the closed loop
(``docs/thermal-closed-loop.md``): the board gets hot all the same, and flips.

Off by default, as some ports of the driver hang on a write to devfreq's ``max_freq``. A hang is
kept from the rest of the plugin, and nothing is written after one. What the limit was is noted in a
file before it is changed: a plugin that was killed gives it back at its next start. The file lies
where a reboot, which resets the limit, removes it.
"""

import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from daemon.logs import fields
from npu import devfreq, rockchip
from npu.devfreq import Limit
from npu.heat import OVERHEATED
from npu.host import Host
from npu.model import Npu
from plugin import limiter
from plugin.files import replace_file
from plugin.limiter import Pace
from plugin.thermometer import Heated

log = logging.getLogger(__name__)

DEFAULT_DIRECTORY: Final = "/run/npu-platform"
FILE_NAME: Final = "clamp.json"
WRITE_SECONDS: Final = 5.0


class ClampError(Exception):
    """The limit could not be written or did not take effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A limit of ours: what ``max_freq`` was, and what it was lowered to, in hertz.

    ``before_hertz`` is an earlier limit of ours that may still be in force: the note is written
    before the limit, and a plugin may be killed between the two.
    """

    original_hertz: int
    clamped_hertz: int
    before_hertz: int | None = None

    @property
    def ours(self) -> tuple[int, ...]:
        """Values of ``max_freq`` that nobody else wrote."""
        if self.before_hertz is None:
            return (self.clamped_hertz,)
        return (self.clamped_hertz, self.before_hertz)


def table(available: Iterable[int], ratio: float) -> tuple[int, ...]:
    """Return the clocks to move through, rising, in hertz; empty where there is no choice. Pure.

    From the highest step within ``ratio`` of the highest there is, else the lowest, to the top.
    """
    steps = sorted(set(available))
    if not steps:
        return ()
    within = [step for step in steps if step <= ratio * steps[-1]]
    lowest = within[-1] if within else steps[0]
    return tuple(step for step in steps if step >= lowest)


def ceiling(steps: Sequence[int], limit: limiter.Limit) -> int | None:
    """Return the step that a limit of so many steps allows, None where all are allowed. Pure.

    The clock never stops: where no slot may be used the lowest step is left.
    """
    if limit.slots is None or limit.slots >= len(steps):
        return None
    return steps[max(limit.slots, 1) - 1]


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
    """Moves the limits of this board's devices; a service whose stop gives them back.

    ``ratio`` is the lowest part of a device's highest clock, ``pace`` the time per step.
    ``write_limit`` takes a path as this process sees it; a parameter for tests.
    """

    def __init__(
        self,
        host: Host,
        directory: Path,
        *,
        ratio: float,
        pace: Pace,
        write_limit: Callable[[str, int], None] = write,
    ) -> None:
        self._host = host
        self._file = directory / FILE_NAME
        self._ratio = ratio
        self._pace = pace
        self._write = write_limit
        self._lock = threading.Lock()
        self._steps: dict[str, limiter.Limit] = {}
        self._held: dict[str, Held] = {}
        #: Devices whose limit somebody else wrote while ours was in force.
        self._yielded: set[str] = set()
        self._stopped = False
        self.problems: dict[str, str] = {}
        self.failures = 0

    def start(self) -> None:
        """Give back what an earlier process of the plugin left lowered."""
        with self._lock:
            self._held = self._noted()
            for unit in list(self._held):
                log.warning("Found a clock limit of a plugin that was killed", extra=_unit(unit))
                self._release(unit)

    def step(self, npus: Mapping[str, Npu], heated: Mapping[str, Heated], now: float) -> None:
        """Move the clock of each device, by identifier, as its heat asks at monotonic ``now``."""
        with self._lock:
            # A look that was under way when the plugin was told to end must not clamp anew.
            for identifier, heat in () if self._stopped else heated.items():
                unit = npus[identifier].unit
                if unit not in self.problems:
                    self._follow(unit, heat, now)

    def clamped(self, npu: Npu) -> Held | None:
        """Return the limit in force on a device, None where it is not ours."""
        return self._held.get(npu.unit)

    def stop(self) -> None:
        """Release every device."""
        with self._lock:
            self._stopped = True
            for unit in list(self._held):
                self._release(unit)

    def _follow(self, unit: str, heat: Heated, now: float) -> None:
        before = self._steps.get(unit, limiter.Limit())
        limit = self._limit(unit)
        steps = () if limit is None else table(limit.steps_hertz, self._ratio)
        if limit is None or not steps:
            # Without a table a device is as it is, until it should be lowered.
            if heat.machine.state in OVERHEATED:
                self._failed(unit, "no devfreq entry with available_frequencies and max_freq")
            return
        allowed = self._steps[unit] = limiter.advance(
            before,
            heat.machine,
            slots=len(steps),
            limits=heat.thresholds,
            pace=self._pace,
            now=now,
        )
        target = ceiling(steps, allowed)
        if target is None:
            self._yielded.discard(unit)
        held = self._held.get(unit)
        if held is not None and limit.maximum_hertz not in held.ours:
            self._yield(unit, limit.maximum_hertz)
        elif held is not None and (target is None or target >= held.original_hertz):
            self._release(unit)
        elif target is not None and unit not in self._yielded:
            original = limit.maximum_hertz if held is None else held.original_hertz
            if target < original and target != limit.maximum_hertz:
                self._clamp(unit, target, Held(original_hertz=original, clamped_hertz=target))

    def _clamp(self, unit: str, target: int, held: Held) -> None:
        before = self._held.get(unit)
        if before is not None:
            # Until the write has happened the limit in force may be either.
            self._held[unit] = replace(held, before_hertz=before.clamped_hertz)
        else:
            self._held[unit] = held
        try:
            self._note()
            self._set(unit, target)
        except (OSError, ClampError) as error:
            self._failed(unit, str(error))
            return
        self._held[unit] = held
        log.warning("Set the clock limit of a warm NPU", extra=_unit(unit, hertz=target))

    def _yield(self, unit: str, hertz: int) -> None:
        """Leave a limit that somebody else wrote: an administrator's, or a reboot's."""
        self._yielded.add(unit)
        del self._held[unit]
        try:
            self._note()
        except OSError as error:
            self._failed(unit, str(error))
            return
        log.warning("Somebody else set the clock limit; left alone", extra=_unit(unit, hertz=hertz))

    def _release(self, unit: str) -> None:
        held = self._held[unit]
        try:
            limit = self._limit(unit)
            if limit is not None and limit.maximum_hertz in held.ours:
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
        data = {unit: [held.original_hertz, *held.ours] for unit, held in self._held.items()}
        replace_file(self._file, json.dumps(data).encode(), mode=0o644)

    def _noted(self) -> dict[str, Held]:
        try:
            data = json.loads(self._file.read_text())
            return {
                str(unit): Held(
                    original_hertz=int(original),
                    clamped_hertz=int(clamped),
                    before_hertz=int(before[0]) if before else None,
                )
                for unit, (original, clamped, *before) in data.items()
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

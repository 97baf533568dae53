"""The control file: how a person or a test takes the board into their hands.

``<board directory>/control.json`` holds one JSON object; every key is optional. While it is absent
the board follows the kubelet's allocations. A file that is wrong changes nothing: what was in force
stays, so that an editor that truncates before it writes does not make the board jump.
"""

import logging
import os
from pathlib import Path
from typing import Annotated

import msgspec

from daemon.logs import fields
from simulator.settings import Celsius, Ratio, Speed

log = logging.getLogger(__name__)

FILE_NAME = "control.json"
_LIMIT_BYTES = 1 << 16

#: What a person may dictate: also temperatures that the platform must not believe.
Dictated = Annotated[float, msgspec.Meta(ge=-273.15, le=1000)]


class Control(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What is dictated; None leaves it to the simulation.

    ``frozen`` stops every write, so that a test can put faulty files into the tree. ``load`` is the
    ratio per core, cores not named are idle. ``celsius`` is the temperature at the NPU itself.
    """

    frozen: bool = False
    load: tuple[Ratio, ...] | None = None
    celsius: Dictated | None = None
    ambient_celsius: Celsius | None = None
    busy_ratio: Ratio | None = None
    speed: Speed | None = None


class ControlFile:
    """Follows the control file of a board directory; ``errors`` counts wrong contents."""

    def __init__(self, board_directory: Path) -> None:
        self._path = board_directory / FILE_NAME
        self._seen: bytes | None = None
        self.control = Control()
        self.active = False
        self.errors = 0

    def step(self) -> Control:
        """Look at the file and return what is in force."""
        try:
            # Not waiting for somebody to write into what may be a FIFO.
            with open(self._path, "rb", opener=_without_waiting) as file:
                content = file.read(_LIMIT_BYTES) or b""
        except FileNotFoundError:
            if self.active:
                log.info("control file gone, the board follows allocations again")
            self._seen, self.control, self.active = None, Control(), False
            return self.control
        except OSError as error:
            self._reject(repr(error).encode(), error)
            return self.control
        if content == self._seen:
            return self.control
        try:
            self.control = msgspec.json.decode(content, type=Control)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._reject(content, error)
            return self.control
        self._seen, self.active = content, True
        log.info("control file in force", extra=fields(control=content.decode().strip()))
        return self.control

    def _reject(self, content: bytes, error: Exception) -> None:
        if content != self._seen:
            self._seen = content
            self.errors += 1
            log.warning("control file ignored", extra=fields(path=self._path, error=error))


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)

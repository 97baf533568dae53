"""The control file: how a person or a test takes the board into their hands.

``<board directory>/control.json`` holds one JSON object; every key is optional. While it is absent
the board follows the kubelet's allocations. A file that is wrong changes nothing: what was in force
stays, so that an editor that truncates before it writes does not make the board jump.
"""

import logging
from pathlib import Path

import msgspec

from daemon.logs import fields
from simulator.settings import Celsius, Ratio, Speed

log = logging.getLogger(__name__)

FILE_NAME = "control.json"
_LIMIT_BYTES = 1 << 16


class Control(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What is dictated; None leaves it to the simulation.

    ``frozen`` stops every write, so that a test can put faulty files into the tree. ``load`` is the
    ratio per core, cores not named are idle. ``celsius`` is the temperature at the NPU itself.
    """

    frozen: bool = False
    load: tuple[Ratio, ...] | None = None
    celsius: float | None = None
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
            with self._path.open("rb") as file:
                content = file.read(_LIMIT_BYTES)
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

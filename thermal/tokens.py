"""Bearer tokens for the API server: where they come from and when they are read again."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

log = logging.getLogger(__name__)


class Token(Protocol):
    """Gives the bearer token for a request, None where certificates are used."""

    def current(self) -> str | None:
        """Return the token to send now."""
        ...

    def refresh(self) -> bool:
        """Read it again after it was refused; tell whether it changed."""
        ...


class FileToken:
    """The token of a mounted service account, read again whenever the file changes.

    The client library re-reads by the wall clock, which stands still for a while after a backwards
    jump; boards without a clock of their own do jump.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._token: str | None = None

    def current(self) -> str | None:
        """Return the token in the file; the last one where the file cannot be read."""
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp:
                self._token = self._path.read_text().strip()
                self._stamp = stamp
        except OSError as error:
            log.warning("token cannot be read: %s", error)
        return self._token

    def refresh(self) -> bool:
        """Forget the file's stamp, so that the next request reads it."""
        before, self._stamp = self._token, None
        return self.current() != before


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedToken:
    """A token (or none) from a kubeconfig."""

    token: str | None = None

    def current(self) -> str | None:
        """Return it."""
        return self.token

    def refresh(self) -> bool:
        """There is no other."""
        return False

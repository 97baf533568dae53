"""Failed readings: counted for the metrics, logged on change.

A sensor that fails at every scrape is one log line, not one per scrape, and a flapping one gets
rarer lines.
"""

import logging
import threading
from collections.abc import Iterable

from daemon.logs import fields
from exporter.catalogue import COLLECTORS

log = logging.getLogger(__name__)


def _key(error: Exception) -> str:
    """What makes two failures the same: contents of files vary, their paths do not."""
    return f"{type(error).__name__} {getattr(error, 'path', error)}"


class Failures:
    """Failures of each collector; safe to use from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(COLLECTORS, 0)
        self._present: dict[str, set[str]] = {}
        self._appearances: dict[str, int] = {}

    def report(self, collector: str, errors: Iterable[Exception], *, source: str = "") -> None:
        """Take note of all failures of one attempt; none means the attempt succeeded.

        ``source`` tells apart several readings of one collector, for example devices.
        """
        found = {_key(error): error for error in errors}
        place = f"{collector}/{source}"
        with self._lock:
            self._counts[collector] += len(found)
            before = self._present.get(place, set())
            self._present[place] = set(found)
            appeared = [key for key in found if key not in before]
            loud = [key for key in appeared if self._appears(f"{place} {key}")]
        for key in loud:
            log.warning(
                "reading failed", extra=fields(collector=collector, source=source, error=found[key])
            )
        if before and not found:
            log.info("reading works again", extra=fields(collector=collector, source=source))

    def counts(self) -> dict[str, int]:
        """Return the number of failed readings of each collector."""
        with self._lock:
            return dict(self._counts)

    def _appears(self, key: str) -> bool:
        """Count an appearance; the 1st, 2nd, 4th, 8th … is worth a line."""
        number = self._appearances[key] = self._appearances.get(key, 0) + 1
        return number & (number - 1) == 0

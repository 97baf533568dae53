"""Logging: one JSON object per line on stderr, or plain text for people at a terminal.

The message is constant; values travel as fields: ``log.info("registered", extra={"fields": {…}})``
through :func:`fields`. Foreign text is cut, so that a hostile file cannot fill the log.
"""

import json
import logging
import sys
import time
from collections.abc import Mapping

_LIMIT = 256
_STATE_KEY = "fields"


def fields(**values: object) -> dict[str, Mapping[str, object]]:
    """Return the ``extra`` argument that attaches ``values`` to a log record."""
    return {_STATE_KEY: values}


def _shown(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= _LIMIT else f"{text[:_LIMIT]}…"


def _fields_of(record: logging.LogRecord) -> dict[str, object]:
    values = getattr(record, _STATE_KEY, {})
    return {key: _shown(value) for key, value in values.items()}


def _time_of(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03d}Z"


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return time, level, logger, message, fields and, where there is one, the traceback."""
        entry: dict[str, object] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry.update(_fields_of(record))
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """Formats a record for a person."""

    def format(self, record: logging.LogRecord) -> str:
        """Return time, level, message and ``key=value`` pairs."""
        pairs = "".join(f" {key}={value}" for key, value in _fields_of(record).items())
        line = (
            f"{_time_of(record)} {record.levelname:<7} {record.name}: {record.getMessage()}{pairs}"
        )
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def configure(level: str, style: str) -> None:
    """Send all log records to stderr at ``level`` in ``style`` (``json`` or ``text``)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    # Python 3.12 asks asyncio for the name of a task with each record; see daemon/deferred.py.
    vars(logging)["logAsyncioTasks"] = False
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)

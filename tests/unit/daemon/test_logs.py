"""Log records are single JSON lines with bounded fields."""

import json
import logging
import sys

from daemon.backoff import Backoff
from daemon.logs import JsonFormatter, TextFormatter, fields


def _record(**values: object) -> logging.LogRecord:
    record = logging.makeLogRecord({"name": "a.b", "levelname": "INFO", "msg": "seen", "msecs": 7})
    for key, value in fields(**values).items():
        setattr(record, key, value)
    return record


def test_json_line_has_message_and_fields() -> None:
    """Message and values are separate, numbers stay numbers."""
    entry = json.loads(JsonFormatter().format(_record(cores=3, zone="npu-thermal", missing=None)))

    assert entry["message"] == "seen"
    assert entry["level"] == "info"
    assert entry["cores"] == 3
    assert entry["zone"] == "npu-thermal"
    assert entry["missing"] is None


def test_foreign_text_is_cut_and_stays_on_one_line() -> None:
    """A hostile file content can neither flood nor forge the log."""
    line = JsonFormatter().format(_record(content="x\n" * 5000))

    assert "\n" not in line
    assert len(line) < 1000


def test_traceback_is_a_field() -> None:
    """An exception stays inside its JSON line."""
    record = _record()
    try:
        int("boom")
    except ValueError:
        record.exc_info = sys.exc_info()

    entry = json.loads(JsonFormatter().format(record))

    assert "ValueError: invalid literal" in entry["exception"]


def test_text_format_is_for_people() -> None:
    """Text style prints key=value pairs."""
    assert TextFormatter().format(_record(cores=3)).endswith("INFO    a.b: seen cores=3")


def test_backoff_doubles_its_ceiling_and_resets() -> None:
    """Delays grow up to the ceiling and start over after a success."""
    backoff = Backoff(first_seconds=1, ceiling_seconds=5, uniform=lambda _low, high: high)

    assert [backoff.next_delay_seconds() for _ in range(4)] == [1, 2, 4, 5]

    backoff.reset()

    assert backoff.next_delay_seconds() == 1

"""Wall time for people and for fields of API objects; nothing is ever decided by it."""

import datetime as dt


def now() -> str:
    """Return the time as Kubernetes writes times (seconds, UTC)."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def now_micro() -> str:
    """Return the time with microseconds (``MicroTime``)."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

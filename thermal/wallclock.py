"""Wall time, for people: in fields of API objects, and where a person named a time."""

import datetime as dt


def moment() -> dt.datetime:
    """Return the time, to compare with one that a person wrote."""
    return dt.datetime.now(dt.UTC)


def now() -> str:
    """Return the time as Kubernetes writes times (seconds, UTC)."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def now_micro() -> str:
    """Return the time with microseconds (``MicroTime``)."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

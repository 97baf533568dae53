"""Waiting has an end and a reason."""

import pytest

from ci.command import CommandError
from ci.kube import WaitError, until


def test_value_is_returned_when_accepted() -> None:
    """Waiting ends with the value that was accepted."""
    values = iter([1, 2, 3])

    assert until(lambda: next(values), lambda v: v == 3, seconds=5, what="three", every=0) == 3


def test_time_out_names_the_wish_and_the_last_value() -> None:
    """A time-out tells what was seen last."""
    with pytest.raises(WaitError, match="taint on node1: not within 0 s; last seen: cool"):
        until(lambda: "cool", lambda _: False, seconds=0, what="taint on node1", every=0)


def test_error_of_the_cluster_is_what_was_seen_last() -> None:
    """A cluster that does not answer yet is not the end of the wait."""

    def fails() -> str:
        raise CommandError("connection refused")

    with pytest.raises(WaitError, match="connection refused"):
        until(fails, seconds=0, what="ready", every=0)

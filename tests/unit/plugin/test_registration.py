"""When to register, and when to start over, is a table."""

import pytest

from plugin.registration import Decision, Registered, Seen, SocketIdentity, Unregistered, decide

FIRST = SocketIdentity(device=1, inode=100, changed_ns=1)
#: The next kubelet's socket often gets the same inode number.
SECOND = SocketIdentity(device=1, inode=100, changed_ns=2)
TIMEOUT = 10.0
WATCHED = Registered(kubelet=FIRST, streamless_since=None)


def decided(state: Unregistered | Registered, seen: Seen, now: float = 100.0) -> Decision:
    return decide(state, seen, now=now, stream_timeout_seconds=TIMEOUT)


@pytest.mark.parametrize(
    ("kubelet", "retry_at", "move"),
    [
        (None, 0.0, "wait"),
        (FIRST, 101.0, "wait"),
        (FIRST, 100.0, "start"),
        (SECOND, 1000.0, "start"),
    ],
)
def test_unregistered(kubelet: SocketIdentity | None, retry_at: float, move: str) -> None:
    """Back-off holds for the kubelet that refused; another one is tried at once."""
    state = Unregistered(kubelet=FIRST, retry_at=retry_at)

    assert decided(state, Seen(kubelet=kubelet)).move == move


def test_watched_registration_is_kept() -> None:
    """Nothing to do while everything is there."""
    seen = Seen(kubelet=FIRST, own_socket=True, stream_open=True)

    assert decided(WATCHED, seen) == Decision(move="keep", state=WATCHED)


def test_kubelet_that_is_away_is_awaited() -> None:
    """Without a kubelet socket there is nobody to register with, whatever else is gone."""
    assert decided(WATCHED, Seen(kubelet=None)).move == "keep"


@pytest.mark.parametrize("stream_open", [False, True])
def test_new_kubelet_that_wiped_our_socket(*, stream_open: bool) -> None:
    """A restart is recognised by the change time although device and inode are the same."""
    seen = Seen(kubelet=SECOND, own_socket=False, stream_open=stream_open)

    assert decided(WATCHED, seen).cause == "kubelet_restarted"


def test_new_kubelet_without_stream() -> None:
    """A kubelet that wipes nothing is recognised as well."""
    seen = Seen(kubelet=SECOND, own_socket=True, stream_open=False)

    assert decided(WATCHED, seen).cause == "kubelet_restarted"


def test_touched_kubelet_socket_is_no_restart() -> None:
    """Changing its mode changes the change time; the registration is as good as before."""
    seen = Seen(kubelet=SECOND, own_socket=True, stream_open=True)

    decision = decided(WATCHED, seen)

    assert decision.move == "keep"
    assert decision.state == Registered(kubelet=SECOND, streamless_since=None)


def test_own_socket_removed_by_somebody() -> None:
    """A server without socket cannot be reached again."""
    seen = Seen(kubelet=FIRST, own_socket=False, stream_open=True)

    assert decided(WATCHED, seen).cause == "own_socket_vanished"


def test_missing_stream_is_tolerated_for_a_while() -> None:
    """The clock starts when the stream is first missed, and stops when it is back."""
    missing = Seen(kubelet=FIRST, own_socket=True, stream_open=False)
    present = Seen(kubelet=FIRST, own_socket=True, stream_open=True)

    first = decided(WATCHED, missing, now=100.0)
    later = decided(first.state, missing, now=109.9)
    back = decided(later.state, present, now=109.95)
    again = decided(back.state, missing, now=110.0)

    assert [first.move, later.move, back.move, again.move] == ["keep"] * 4
    assert decided(later.state, missing, now=110.0).cause == "no_stream"
    assert decided(again.state, missing, now=119.9).move == "keep"

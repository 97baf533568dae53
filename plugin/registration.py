"""When to register with the kubelet, and when to start over. Pure.

A kubelet that starts deletes every socket in the directory and creates ``kubelet.sock`` anew, often
with the same inode number, so the change time belongs to its identity. Registering again on the
same socket leaks connections in the kubelet and is not supported (kubernetes/kubernetes#139338):
starting over always means a new server on a new socket name.
"""

from dataclasses import dataclass, replace
from typing import Literal

#: Pause between the end of a server and the registration of its successor with a kubelet that kept
#: running: its clean-up after the old one may otherwise hit the new one (#121994, #127803).
SUCCESSION_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketIdentity:
    """What tells one ``kubelet.sock`` from the next."""

    device: int
    inode: int
    changed_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One observation: the kubelet's socket first, then our own."""

    kubelet: SocketIdentity | None
    own_socket: bool = False
    stream_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unregistered:
    """No server. ``kubelet`` is the socket of the last attempt, ``retry_at`` the next one's time.

    A kubelet that appears is tried at once, whatever ``retry_at`` says.
    """

    kubelet: SocketIdentity | None = None
    retry_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A server that the kubelet accepted; ``streamless_since`` is None while a stream is open."""

    kubelet: SocketIdentity
    streamless_since: float | None


State = Unregistered | Registered
Move = Literal["wait", "start", "keep", "replace"]
Cause = Literal["kubelet_restarted", "own_socket_vanished", "no_stream"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do now, the state that holds meanwhile, and why a server is replaced."""

    move: Move
    state: State
    cause: Cause | None = None


def decide(state: State, seen: Seen, *, now: float, stream_timeout_seconds: float) -> Decision:
    """Decide.

    ============ ============================================ ======================
    state        seen                                         move
    ============ ============================================ ======================
    unregistered no kubelet socket                            wait
    unregistered a kubelet socket not tried yet, or due       start
    registered   no kubelet socket (stopped or starting)      keep
    registered   own socket gone, or stream closed, and a new replace, kubelet_restarted
                 kubelet socket
    registered   own socket gone, same kubelet socket         replace, own_socket_vanished
    registered   no stream for too long                       replace, no_stream
    registered   new kubelet socket, own socket and stream    keep: somebody touched it
    ============ ============================================ ======================
    """
    if isinstance(state, Unregistered):
        ready = seen.kubelet is not None and (
            seen.kubelet != state.kubelet or now >= state.retry_at
        )
        return Decision(move="start" if ready else "wait", state=state)
    streamless_since = None if seen.stream_open else state.streamless_since
    if not seen.stream_open and streamless_since is None:
        streamless_since = now
    state = replace(state, streamless_since=streamless_since)
    if seen.kubelet is None:
        return Decision(move="keep", state=state)
    if not seen.own_socket or (seen.kubelet != state.kubelet and not seen.stream_open):
        same = seen.kubelet == state.kubelet
        cause: Cause = "own_socket_vanished" if same else "kubelet_restarted"
        return Decision(move="replace", state=state, cause=cause)
    if streamless_since is not None and now - streamless_since >= stream_timeout_seconds:
        return Decision(move="replace", state=state, cause="no_stream")
    return Decision(move="keep", state=replace(state, kubelet=seen.kubelet))

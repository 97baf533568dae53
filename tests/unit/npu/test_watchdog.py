"""Reads that block do not block the service, and do not pile up."""

import threading
from collections.abc import Iterator

import pytest

from npu.errors import ImplausibleError, MissingError, TransientError
from npu.host import Host, read_bounded
from npu.watchdog import WatchedReader


class Kernel:
    """A reader whose paths named ``wedged`` block until released."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.entered = threading.Event()
        self.calls = 0

    def __call__(self, path: str, limit: int) -> bytes:
        """Read, or block."""
        self.calls += 1
        if path.endswith("wedged"):
            self.entered.set()
            self.release.wait(30)
        return f"{path} {limit}\n".encode()


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    yield kernel
    kernel.release.set()


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "board-reads"}


def test_reads_pass_through(kernel: Kernel) -> None:
    """Content and limit are those of the reader below."""
    reader = WatchedReader(kernel)
    assert Host("", reader=reader).read("/sys/a", 7) == b"/sys/a 7\n"
    reader.close()


def test_failures_pass_through() -> None:
    """An errno of the read keeps its meaning, and any other error arrives too."""
    reader = WatchedReader(read_bounded)
    with pytest.raises(MissingError):
        Host("", reader=reader).read("/nowhere/at/all")

    def broken(path: str, limit: int) -> bytes:
        raise ImplausibleError(path, limit, "better")

    with pytest.raises(ImplausibleError):
        WatchedReader(broken)("/x", 1)
    reader.close()


def test_a_stuck_read_is_transient_and_later_ones_fail_at_once(kernel: Kernel) -> None:
    """While one read is stuck no other is begun, and one thread is all there is."""
    before = _threads()
    reader = WatchedReader(kernel, limit_seconds=0.05)
    host = Host("", reader=reader)
    with pytest.raises(TransientError, match="stuck"):
        host.read("/sys/wedged")
    assert reader.stuck_on == "/sys/wedged"
    for _ in range(20):
        with pytest.raises(TransientError, match="stuck behind /sys/wedged"):
            host.read("/sys/fine")
    assert kernel.entered.wait(30)
    assert kernel.calls == 1
    assert len(_threads() - before) == 1


def test_reads_go_on_when_the_stuck_one_returns(kernel: Kernel) -> None:
    """The thread comes back to work; the late content is not taken for a later read's."""
    reader = WatchedReader(kernel, limit_seconds=0.05)
    host = Host("", reader=reader)
    with pytest.raises(TransientError):
        host.read("/sys/wedged")
    thread = reader._thread
    kernel.release.set()
    patient = threading.Event()
    while reader.stuck_on is not None:
        patient.wait(0.005)
    assert host.read("/sys/fine") == b"/sys/fine 4096\n"
    assert reader._thread is thread
    reader.close()


def test_threads_take_turns(kernel: Kernel) -> None:
    """Concurrent callers each get their own content."""
    reader = WatchedReader(kernel)
    results: dict[str, bytes] = {}

    def read(path: str) -> None:
        for _ in range(50):
            results[path] = reader(path, 1)

    threads = [threading.Thread(target=read, args=(f"/{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {f"/{n}": f"/{n} 1\n".encode() for n in range(8)}
    reader.close()


def test_a_caller_waiting_for_its_turn_gives_up_too(kernel: Kernel) -> None:
    """A scrape that comes while a read hangs answers within its own limit."""
    reader = WatchedReader(kernel, limit_seconds=0.3)

    def hang() -> None:
        with pytest.raises(TransientError):
            reader("/wedged", 1)

    first = threading.Thread(target=hang)
    first.start()
    kernel.entered.wait(10)
    with pytest.raises(TransientError, match="stuck"):
        reader("/fine", 1)
    first.join()


def test_closing_ends_the_thread(kernel: Kernel) -> None:
    """A closed reader leaves nothing behind, and closing one that never read is fine."""
    reader = WatchedReader(kernel)
    reader.close()
    reader("/a", 1)
    thread = reader._thread
    assert thread is not None
    reader.close()
    thread.join(10)
    assert not thread.is_alive()

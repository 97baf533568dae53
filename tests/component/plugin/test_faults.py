"""What a node can do to a plugin: floods, garbage, full disks, closed files, endless restarts."""

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kubelet._proto import deviceplugin_v1beta1_pb2 as messages
from kubelet.paths import is_own_socket_name
from npu.host import Host, Reader, read_bounded
from npu.scan import driver_of, scan
from npu.watchdog import WatchedReader
from plugin import health
from plugin.board import Board
from plugin.claims import Claims, Known
from plugin.config import PluginConfig
from plugin.looks import Looker
from plugin.manager import Manager
from plugin.metrics import Metrics
from tests.component.fake_kubelet import FakeKubelet
from tests.component.plugin.plugin_process import RESOURCE, PluginProcess

Start = Callable[..., PluginProcess]
HEALTHY = {"npu0": "Healthy"}
#: Started as a container is: user 0 without a capability, to whom file modes apply.
WITHOUT_CAPABILITIES = ("setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs")


class Node:
    """Board and manager in this process, without loops: the test is the clock's hand."""

    def __init__(self, kubelet: FakeKubelet, tree: Path, reader: Reader = read_bounded) -> None:
        host = Host(tree, str(tree), reader)
        claims = Claims(lambda: Known(asked_at=0.0))
        config = PluginConfig()
        looker = Looker(
            host,
            config,
            scan=lambda: scan(host),
            probe=lambda npu: health.probe(host, driver_of(npu), npu),
            load=lambda npu: driver_of(npu).load(host, npu),
        )
        self.board = Board(config, look=looker.look, claims=claims)
        self.manager = Manager(
            kubelet.plugins.parent,
            self.board.offer,
            on_node=host.on_node,
            claims=claims,
            metrics=Metrics(),
            stream_timeout_seconds=10.0,
        )

    def step(self) -> None:
        """Look at the board and at the kubelet once."""
        self.board.step()
        self.manager.step()


@contextmanager
def serving(node: Node) -> Iterator[None]:
    """Stop the servers of ``node`` at the end."""
    try:
        yield
    finally:
        node.manager.stop()


def shared_object(*, needs: Path) -> bytes:
    """Return an empty shared library of this machine that needs another one, see elf(5)."""
    with Path(sys.executable).open("rb") as file:
        machine = struct.unpack_from("<H", file.read(20), 18)[0]
    strings = b"\0" + bytes(needs) + b"\0"
    at_dynamic, at_strings = 0x100, 0x200
    size = at_strings + len(strings)
    symbols = at_dynamic + 0x80
    # DT_NEEDED, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_NULL
    entries = ((1, 1), (5, at_strings), (6, symbols), (10, len(strings)), (11, 24), (0, 0))
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in entries)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 6, 0, 0, 0, size, size, 0x1000)
    length = len(dynamic)
    found = struct.pack("<IIQQQQQQ", 2, 6, at_dynamic, at_dynamic, at_dynamic, length, length, 8)
    head = (ident + header + load + found).ljust(at_dynamic, b"\0")
    return (head + dynamic).ljust(at_strings, b"\0") + strings


def own_sockets(kubelet: FakeKubelet) -> list[str]:
    return sorted(p.name for p in kubelet.plugins.iterdir() if is_own_socket_name(p.name))


def test_a_thousand_allocates_at_once_are_all_answered(kubelet: FakeKubelet, start: Start) -> None:
    """More calls than workers wait their turn; none is refused, and the stream stays open."""
    kubelet.start()
    plugin = start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)
    request = messages.AllocateRequest(
        container_requests=[messages.ContainerAllocateRequest(devices_ids=["npu0"])]
    )
    stub = kubelet.endpoint(RESOURCE).stub

    calls = [stub.Allocate.future(request, timeout=60) for _ in range(1000)]
    answers = [call.result() for call in calls]

    assert all(a.container_responses[0].envs["NPU_DEVICE_IDS"] == "npu0" for a in answers)
    series = f'npu_device_plugin_allocations_total{{resource="{RESOURCE}"}}'
    plugin.wait(lambda: plugin.metric(series) == 1000)
    assert len(kubelet.registrations) == 1
    kubelet.wait_for_devices(RESOURCE, HEALTHY)


def test_garbage_on_the_socket_disturbs_nobody(kubelet: FakeKubelet, start: Start) -> None:
    """Bytes that are no HTTP/2, half a preface and clients that say nothing take nothing away."""
    kubelet.start()
    plugin = start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)
    path = str(kubelet.plugins / kubelet.endpoint(RESOURCE).socket_name)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    clients = []
    for text in (b"\x00" * 4096, b"GET / HTTP/1.1\r\n\r\n", preface[:10], preface + b"\xff" * 99):
        for _ in range(10):
            clients.append(socket.socket(socket.AF_UNIX))
            clients[-1].connect(path)
            with suppress(OSError):
                clients[-1].sendall(text)
    for _ in range(50):
        clients.append(socket.socket(socket.AF_UNIX))
        clients[-1].connect(path)

    try:
        for _ in range(5):
            assert kubelet.allocate(RESOURCE, "npu0").envs
        assert plugin.ready()
        assert len(kubelet.registrations) == 1
    finally:
        for client in clients:
            client.close()


def test_watcher_that_does_not_read_holds_up_nobody(
    kubelet: FakeKubelet, start: Start, board: Path
) -> None:
    """A client that opens the list and reads nothing delays neither lists nor Allocates."""
    kubelet.start()
    start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)
    stub = kubelet.endpoint(RESOURCE).stub
    streams = [stub.ListAndWatch(messages.Empty()) for _ in range(2)]
    node = board / "dev/dri/card1"

    for _ in range(3):
        node.rename(board / "dev/dri/away")
        kubelet.wait_for_devices(RESOURCE, {"npu0": "Unhealthy"})
        (board / "dev/dri/away").rename(node)
        kubelet.wait_for_devices(RESOURCE, HEALTHY)

    assert kubelet.allocate(RESOURCE, "npu0").envs
    for stream in streams:
        stream.cancel()


def test_full_disk_is_waited_out(kubelet: FakeKubelet, start: Start) -> None:
    """Where no socket can be created the plugin says so, lives, and registers when one can."""
    kubelet.plugins.mkdir(parents=True)
    options = ["-o", "size=64k,nr_inodes=16"]
    subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", kubelet.plugins], check=True)
    try:
        kubelet.start()
        fillers = [kubelet.plugins / f"filler-{number}" for number in range(32)]
        with suppress(OSError):
            for filler in fillers:
                filler.touch()
        plugin = start()
        plugin.wait(lambda: plugin.logged("Cannot register"))

        status, text = plugin.get("/readyz")
        for filler in fillers:
            filler.unlink(missing_ok=True)

        assert status == 503
        assert "cannot serve: No space left on device" in text
        assert plugin.get("/healthz")[0] == 200
        kubelet.wait_for_devices(RESOURCE, HEALTHY, seconds=30)
        plugin.end()
    finally:
        kubelet.stop()
        subprocess.run(["umount", "--lazy", kubelet.plugins], check=True)


def test_unreadable_sys_is_no_evidence_of_a_fault(
    kubelet: FakeKubelet, start: Start, board: Path
) -> None:
    """A process to which /sys is closed keeps what it knows: unknown is not unhealthy."""
    kubelet.start()
    plugin = start(wrapper=WITHOUT_CAPABILITIES)
    kubelet.wait_for_devices(RESOURCE, HEALTHY)

    (board / "sys").chmod(0)

    plugin.wait(lambda: '"unmeasured"' in plugin.get("/allocations")[1])
    assert kubelet.devices(RESOURCE) == HEALTHY
    assert kubelet.allocate(RESOURCE, "npu0").envs
    assert plugin.get("/healthz")[0] == 200
    (board / "sys").chmod(0o755)
    plugin.wait(lambda: '"unmeasured"' not in plugin.get("/allocations")[1])


def test_read_that_hangs_in_the_kernel_stops_neither_allocate_nor_kubelet(
    kubelet: FakeKubelet, board: Path
) -> None:
    """While a driver file does not answer, the device is unknown and everything is served."""
    hang, go_on = threading.Event(), threading.Event()

    def reader(path: str, limit: int) -> bytes:
        if hang.is_set():
            go_on.wait(30)
        return read_bounded(path, limit)

    watched = WatchedReader(reader, limit_seconds=0.2)
    node = Node(kubelet, board, watched)
    kubelet.start()
    with serving(node):
        node.step()
        kubelet.wait_for_devices(RESOURCE, HEALTHY)

        hang.set()
        node.step()

        assert watched.stuck_on is not None
        assert kubelet.devices(RESOURCE) == HEALTHY
        assert kubelet.allocate(RESOURCE, "npu0", timeout_seconds=2).envs
        kubelet.restart()
        node.manager.step()
        kubelet.wait_for_devices(RESOURCE, HEALTHY)
        go_on.set()
    watched.close()


def test_library_that_hangs_when_it_is_loaded_stops_nothing(
    kubelet: FakeKubelet, start: Start, board: Path, place: Path
) -> None:
    """The load is in a process of its own: the device is unhealthy, everything else goes on."""
    library = board / "usr/lib/librknnrt.so"
    # The loader waits for somebody who writes.
    os.mkfifo(place / "needed.so")
    library.write_bytes(shared_object(needs=place / "needed.so"))
    config = place / "dlopen.yaml"
    config.write_text(
        "rescanPeriodSeconds: 0.2\n"
        "health: {periodSeconds: 0.2, recoverAfterSeconds: 0.5, dlopen: true}\n"
    )
    kubelet.start()
    plugin = start(f"--config={config}")
    kubelet.wait_for_devices(RESOURCE, {"npu0": "Unhealthy"}, seconds=30)

    (device,) = json.loads(plugin.get("/allocations")[1])["devices"]
    assert device["reason"] == "library_unusable"
    kubelet.restart()
    kubelet.wait(lambda: len(kubelet.registrations) == 2)
    assert plugin.get("/healthz")[0] == 200
    library.unlink()
    kubelet.wait_for_devices(RESOURCE, HEALTHY, seconds=30)


def test_fifty_plugins_in_a_row_are_all_registered(kubelet: FakeKubelet, board: Path) -> None:
    """Each successor is known to the kubelet under a new socket, and nothing is left behind."""
    kubelet.start()
    names = set()

    for number in range(50):
        node = Node(kubelet, board)
        with serving(node):
            node.step()
            kubelet.wait(lambda count=number + 1: len(kubelet.registrations) == count)  # type: ignore[misc]
            kubelet.wait_for_devices(RESOURCE, HEALTHY)
            names.add(kubelet.endpoint(RESOURCE).socket_name)
            assert len(own_sockets(kubelet)) == 1
        kubelet.wait_for_devices(RESOURCE, {"npu0": "Unhealthy"})

    assert len(names) == 50
    assert own_sockets(kubelet) == []


def test_fifty_kubelets_in_a_row_get_a_registration(kubelet: FakeKubelet, board: Path) -> None:
    """However often the kubelet restarts, the plugin registers once with each."""
    kubelet.start()
    node = Node(kubelet, board)
    with serving(node):
        node.step()
        kubelet.wait_for_devices(RESOURCE, HEALTHY)

        for number in range(50):
            kubelet.restart()
            node.step()
            kubelet.wait(lambda count=number + 2: len(kubelet.registrations) == count)  # type: ignore[misc]
            kubelet.wait_for_devices(RESOURCE, HEALTHY)
            assert len(own_sockets(kubelet)) == 1


def test_no_inotify_instance_is_used(kubelet: FakeKubelet, start: Start) -> None:
    """All root processes of a node share 128 of them; the plugin takes none."""
    kubelet.start()
    plugin = start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)

    files = Path(f"/proc/{plugin.process.pid}/fd").iterdir()
    targets = []
    for file in files:
        with suppress(FileNotFoundError):
            targets.append(str(file.readlink()))

    assert not [target for target in targets if "inotify" in target]


@pytest.mark.parametrize("gone", ["npu-*.sock", "kubelet.sock"])
def test_lost_socket_files_are_survived(kubelet: FakeKubelet, start: Start, gone: str) -> None:
    """Somebody who cleans up the directory does no lasting harm, whichever socket it was."""
    kubelet.start()
    plugin = start()
    kubelet.wait_for_devices(RESOURCE, HEALTHY)

    for path in kubelet.plugins.glob(gone):
        path.unlink()
    if gone == "kubelet.sock":
        assert plugin.get("/healthz")[0] == 200
        kubelet.restart()

    kubelet.wait(lambda: len(kubelet.registrations) == 2)
    kubelet.wait_for_devices(RESOURCE, HEALTHY)

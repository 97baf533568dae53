"""The doctor names each fault that was made, with what to do."""

import errno
import os
import socket
import stat
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from npu import catalogue
from npu.host import Host
from npu.layout import expand
from npu.model import Inventory, Refused
from npu.scan import scan
from npu.tree import materialise
from plugin.checkpoint import FILE_NAME
from plugin.doctor import board, container, finding, kubelet, wedge
from plugin.doctor.command import container_findings, guarded
from plugin.doctor.finding import Finding, as_json, as_text, exit_code
from tests.unit.plugin.boards import RESOURCE, drm_npu

ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, 183)


def tree(directory: Path) -> Host:
    """Return an RK3588 in a directory, nodes being plain files."""
    materialise(expand(catalogue.load("rk3588")), directory, device_nodes=False)
    return Host(directory)


def only(findings: Iterator[Finding]) -> Finding:
    (found,) = findings
    return found


def library_file(directory: Path, name: str, version: bytes, header: bytes = ELF) -> Host:
    path = directory / "usr/lib" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + bytes(16) + version)
    return Host(directory)


class TestReport:
    """Text, JSON and exit code agree."""

    FINDINGS = (
        finding.ok("driver", "fine"),
        finding.warn("device tree", "masked", "unmask it"),
    )

    def test_warnings_do_not_fail(self) -> None:
        """A warning may be meant."""
        assert exit_code(self.FINDINGS) == 0
        assert exit_code([*self.FINDINGS, finding.fail("x", "y", "z")]) == 1

    def test_text_has_the_remedy_below(self) -> None:
        """One line each, remedies indented, a summary."""
        assert as_text(self.FINDINGS).splitlines() == [
            "ok    driver       fine",
            "warn  device tree  masked",
            "                   -> unmask it",
            "1 ok, 1 warn, 0 fail",
        ]

    def test_json(self) -> None:
        """The same for programs."""
        assert '"remedy": "unmask it"' in as_json(self.FINDINGS)
        assert '"ok": true' in as_json(self.FINDINGS)

    def test_broken_check_keeps_what_was_found(self) -> None:
        """A doctor that dies of a broken board helps nobody."""

        def broken() -> Iterator[Finding]:
            yield self.FINDINGS[0]
            raise RuntimeError("oops")

        first, second = guarded(broken())
        assert first == self.FINDINGS[0]
        assert (second.level, "oops" in second.text) == ("fail", True)


class TestDriver:
    """What the scan says, in the words of an administrator."""

    def test_healthy_board(self, tmp_path: Path) -> None:
        """Driver, version and mode are told."""
        found = list(board.driver(scan(tree(tmp_path)), on_node=True))
        assert [f.level for f in found] == ["ok"]
        assert "0.9.8" in found[0].text

    def test_old_driver(self) -> None:
        """Known to hang under load."""
        found = only(board.driver(Inventory(npus=(drm_npu(driver_version="0.8.2"),)), on_node=True))
        assert found.level == "warn"
        assert "0.9.5" in found.remedy

    @pytest.mark.parametrize(
        ("why", "word"), [("driver_not_bound", "dmesg"), ("node_disabled", "overlay")]
    )
    def test_refused_hardware(self, why: str, word: str) -> None:
        """The remedy fits the reason."""
        refused = Refused(what="fdab0000.npu", why=why, detail="see there")  # type: ignore[arg-type]
        found = only(board.driver(Inventory(refused=(refused,)), on_node=True))
        assert found.level == "fail"
        assert word in found.remedy

    def test_container_does_not_see_the_nodes_names(self) -> None:
        """In a container a bound driver without its node's name in /dev is no fault."""
        refused = Refused(what="fdab0000.npu", why="no_device_node", detail="")
        assert only(board.driver(Inventory(refused=(refused,)), on_node=False)).level == "ok"
        assert only(board.driver(Inventory(refused=(refused,)), on_node=True)).level == "fail"

    def test_no_hardware(self) -> None:
        """Nothing there is a fault on a node, and may be simulated in a container."""
        assert only(board.driver(Inventory(), on_node=True)).level == "fail"
        assert only(board.driver(Inventory(), on_node=False)).level == "warn"


class TestLibrary:
    """Missing, wrong, unreadable, too new."""

    def test_missing(self, tmp_path: Path) -> None:
        """Where to put it and why ldconfig may not be the point."""
        found = only(board.libraries(Host(tmp_path), None))
        assert found.level == "warn"
        assert "ldconfig" in found.remedy

    def test_fitting(self, tmp_path: Path) -> None:
        """Version of library and driver side by side."""
        host = library_file(
            tmp_path, "librknnrt.so", b"librknnrt version: 2.3.2 (429f97ae6b@2025-04-09T09:09:27)"
        )
        found = only(board.libraries(host, drm_npu(driver_version="0.9.8")))
        assert (found.level, "2.3.2" in found.text, "0.9.8" in found.text) == ("ok", True, True)

    def test_for_another_machine(self, tmp_path: Path) -> None:
        """An x86 library in an image for boards."""
        header = ELF[:18] + struct.pack("<H", 62)
        host = library_file(tmp_path, "librknnrt.so", b"", header)
        assert only(board.libraries(host, None)).level == "fail"

    @pytest.mark.parametrize(
        ("library", "driver", "level"),
        [("1.2.1", "0.9.7", "warn"), ("1.1.4", "0.8.2", "warn"), ("1.2.1", "0.9.8", "ok")],
    )
    def test_driver_too_old_for_the_library(
        self, tmp_path: Path, library: str, driver: str, level: str
    ) -> None:
        """What RKLLM asks for."""
        text = f"rkllm-runtime version: {library}".encode()
        host = library_file(tmp_path, "librkllmrt.so", text)
        assert only(board.libraries(host, drm_npu(driver_version=driver))).level == level

    def test_not_readable(self, tmp_path: Path) -> None:
        """Mode 0600 breaks programs that are not root."""
        library_file(tmp_path, "librknnrt.so", b"")

        def denied(path: str, _limit: int) -> bytes:
            raise PermissionError(errno.EACCES, "denied", path)

        found = only(board.libraries(Host(tmp_path, reader=denied), None))
        assert (found.level, "chmod" in found.remedy) == ("fail", True)


class TestNames:
    """Device tree and /dev/rknpu."""

    def test_masked_device_tree(self, tmp_path: Path) -> None:
        """It matters to RKNN-Toolkit Lite only."""
        found = board.device_tree(Host(tmp_path))
        assert (found.level, "Toolkit Lite" in found.remedy) == ("warn", True)
        assert board.device_tree(tree(tmp_path)).level in {"ok", "warn"}

    def test_no_misc_node_is_normal(self, tmp_path: Path) -> None:
        """And a made-up one is a fault."""
        host = tree(tmp_path)
        assert only(board.misc_node(host, frozenset({"drm"}))).level == "ok"
        (tmp_path / "dev/rknpu").symlink_to("dri/card1")
        assert only(board.misc_node(host, frozenset({"drm"}))).level == "fail"


class TestContainer:
    """What a container was given."""

    def test_not_granted(self) -> None:
        """The environment tells, and the remedy names the resource."""
        found = container.granted({})
        assert (found.level, "rockchip.com/npu" in found.remedy) == ("fail", True)
        assert container.granted({"NPU_DEVICE_IDS": "npu0"}).level == "ok"

    def test_no_node(self, tmp_path: Path) -> None:
        """Neither one that is named nor one that is there."""
        assert only(container.nodes({}, tmp_path)).level == "fail"
        named = only(container.nodes({"RKNN_NPU_DEVICE": "/dev/dri/card1"}, tmp_path))
        assert (named.level, "ENOENT" in named.text) == ("fail", True)

    def test_node_that_is_a_file(self, tmp_path: Path) -> None:
        """An image that ships a file of that name."""
        tree(tmp_path)
        levels = {f.level for f in container.nodes({}, tmp_path)}
        assert levels == {"fail"}

    @pytest.mark.parametrize(
        ("number", "word"),
        [
            (errno.EACCES, "supplementalGroups"),
            (errno.EPERM, "hostPath"),
            (errno.EBUSY, "hostPID"),
            (errno.ENODEV, "crashed"),
            (errno.EIO, "dmesg"),
        ],
    )
    def test_node_that_does_not_open(
        self, monkeypatch: pytest.MonkeyPatch, number: int, word: str
    ) -> None:
        """Each errno has its cause."""

        def refuse(*_arguments: object) -> int:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr("plugin.doctor.container.os.open", refuse)
        found = container.opened("/dev/null")
        assert found.level == "fail"
        assert errno.errorcode[number] in found.text
        assert word in found.remedy

    def test_node_that_opens(self) -> None:
        """A device that is granted."""
        assert container.opened("/dev/null").level == "ok"

    def test_open_that_hangs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A wedged driver does not hang the doctor."""
        release = threading.Event()
        monkeypatch.setattr("plugin.doctor.container.OPEN_SECONDS", 0.1)
        monkeypatch.setattr("plugin.doctor.container.os.open", lambda *_: release.wait() and 3)
        monkeypatch.setattr("plugin.doctor.container.os.close", lambda _: None)
        found = container.opened("/dev/null")
        release.set()
        assert (found.level, "wedged" in found.remedy) == ("fail", True)

    def test_open_files(self) -> None:
        """RKLLM needs many."""
        assert container.descriptors(1024).level == "warn"
        assert container.descriptors(1 << 20).level == "ok"

    def test_whole_container(self, tmp_path: Path) -> None:
        """All checks of a container run on a tree with nothing in it."""
        found = list(container_findings(Host(tmp_path), {}))
        assert {f.check for f in found} == {
            "grant",
            "driver",
            "device node",
            "library",
            "device tree",
            "open files",
        }


def listen(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


class TestKubelet:
    """The directory of device plugins."""

    def levels(self, directory: Path) -> dict[str, str]:
        """Return the level of each check."""
        return {f.check: f.level for f in kubelet.directory(directory, {RESOURCE})}

    def test_missing_directory(self, tmp_path: Path) -> None:
        """Another kubelet directory is the usual cause."""
        found = only(kubelet.directory(tmp_path, {RESOURCE}))
        assert (found.level, "kubeletDir" in found.text) == ("fail", True)

    def test_kubelet_and_plugin(self, tmp_path: Path) -> None:
        """Both answer."""
        plugins = tmp_path / "device-plugins"
        with listen(plugins / "kubelet.sock"), listen(plugins / "npu-0123abcd.sock"):
            assert self.levels(tmp_path) == {
                "kubelet": "ok",
                "plugin": "ok",
                "other plugins": "ok",
            }

    def test_nobody_serves(self, tmp_path: Path) -> None:
        """Sockets that a killed process left are not served."""
        plugins = tmp_path / "device-plugins"
        listen(plugins / "kubelet.sock").close()
        listen(plugins / "npu-0123abcd.sock").close()
        assert self.levels(tmp_path) == {
            "kubelet": "fail",
            "plugin": "fail",
            "other plugins": "ok",
        }

    def test_foreign_socket(self, tmp_path: Path) -> None:
        """Another NPU plugin is told; a GPU's is not."""
        plugins = tmp_path / "device-plugins"
        with (
            listen(plugins / "kubelet.sock"),
            listen(plugins / "nvidia-gpu.sock"),
            listen(plugins / "rknpu.sock"),
        ):
            found = list(kubelet.directory(tmp_path, {RESOURCE}))
        assert [f.text for f in found if f.level == "warn"] == [
            "socket rknpu.sock looks like another NPU plugin"
        ]

    def test_foreign_identifiers(self, tmp_path: Path) -> None:
        """The kubelet's checkpoint tells what it was offered under our name."""
        plugins = tmp_path / "device-plugins"
        with listen(plugins / "kubelet.sock"):
            (plugins / FILE_NAME).write_text(
                '{"Data": {"RegisteredDevices": {"rockchip.com/npu": ["npu0", "rknpu-0"]}}}'
            )
            found = list(kubelet.directory(tmp_path, {RESOURCE}))
        (warning,) = [f for f in found if f.level == "warn"]
        assert "rockchip.com/npu as rknpu-0" in warning.text


class TestWedge:
    """Traces of an NPU that hangs."""

    def busy(self, directory: Path, percent: int) -> Host:
        """Return a board whose first core has this load."""
        host = tree(directory)
        line = f"NPU load:  Core0: {percent}%, Core1:  0%, Core2:  0%,\n"
        (directory / "sys/kernel/debug/rknpu/load").write_text(line)
        return host

    @pytest.mark.parametrize(
        ("percent", "holders", "level"),
        [
            (100, set(), "fail"),
            (100, {"vision/p/c"}, "warn"),
            (100, None, "warn"),
            (40, set(), "ok"),
        ],
    )
    def test_load(self, tmp_path: Path, percent: int, holders: set[str] | None, level: str) -> None:
        """Full load that nobody asked for is the evidence."""
        host = self.busy(tmp_path, percent)
        (npu,) = scan(host).npus
        slept: list[float] = []

        assert wedge.load(host, npu, holders, sleep=slept.append).level == level
        assert len(slept) == 2

    def test_load_that_is_not_readable(self, tmp_path: Path) -> None:
        """No debugfs is no fault."""
        host = tree(tmp_path)
        (npu,) = scan(host).npus
        (tmp_path / "sys/kernel/debug/rknpu/load").unlink()
        assert wedge.load(host, npu, None, sleep=lambda _: None).level == "ok"

    def test_openers(self) -> None:
        """This process has a device open, and is found by the device's number."""
        number = Path("/dev/null").stat().st_rdev
        with Path("/dev/null").open("rb"):
            found, _ = wedge.openers(Path("/proc"), {(os.major(number), os.minor(number))})
        assert os.getpid() in {opener.pid for opener in found}
        assert {opener.path for opener in found} >= {"/dev/null"}
        assert wedge.openers(Path("/proc"), set())[0] == []

    def test_users_without_device(self, tmp_path: Path) -> None:
        """Plain files in place of nodes match nothing."""
        host = tree(tmp_path)
        assert wedge.users(host, scan(host).npus, set()).level == "ok"
        assert "not known" in wedge.users(host, (), None, tmp_path / "nowhere").text

    def test_kernel_log(self) -> None:
        """Lines of jobs that did not end, and none of harmless ones."""
        harmless = "4,1,1,-;RKNPU fdab0000.npu: failed to find power_model node"
        job = "4,2,2,-;RKNPU: failed to wait job, task counter: 0, flags: 0x5, ret = 0"
        assert wedge.kernel_log(lambda: None).level == "ok"
        assert wedge.kernel_log(lambda: [harmless]).level == "ok"
        found = wedge.kernel_log(lambda: [harmless, job])
        assert (found.level, "failed to wait job" in found.text) == ("warn", True)

    def test_kernel_log_of_this_machine(self) -> None:
        """Lines, or nothing without the capability; never an error."""
        lines = wedge.read_kernel_log()
        assert lines is None or all(isinstance(line, str) for line in lines)

    def test_holders_of_a_device(self) -> None:
        """By the devices each holder has."""
        held = {"a/p/c": {"npu0"}, "b/p/c": {"npu1", "npu0"}}
        assert wedge.holder_names(held, "npu0") == {"a/p/c", "b/p/c"}
        assert wedge.holder_names(held, "npu2") == set()


def test_null_is_a_character_device() -> None:
    """What the tests of opening rely on."""
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)

"""The doctor's rows for Ascend: what is absent, and what to do."""

import shutil
import socket
from pathlib import Path

import pytest

from npu import catalogue
from npu.host import Host
from npu.layout import expand
from npu.scan import scan
from npu.tree import materialise
from plugin.doctor import kubelet
from plugin.doctor.ascend import findings
from plugin.doctor.finding import Finding


def judged(directory: Path, board: str, *absent: str) -> list[Finding]:
    materialise(expand(catalogue.load(board)), directory, device_nodes=False)
    for path in absent:
        place = directory / path
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    host = Host(directory)
    return list(findings(host, scan(host)))


def test_sound_server(tmp_path: Path) -> None:
    """Driver with version, manager node, libraries."""
    found = judged(tmp_path, "ascend910b")
    assert [finding.level for finding in found] == ["ok"] * 3
    assert "25.5.1" in found[0].text


@pytest.mark.parametrize(
    ("board", "absent", "text", "remedy"),
    [
        ("ascend910b-unbound", (), "driver absent", "HDK"),
        ("ascend910b", ("dev/davinci_manager",), "manager node absent", "reboot"),
        ("ascend310p", ("usr/local/Ascend",), "driver libraries absent", "-8005"),
    ],
)
def test_what_is_absent_is_named_with_its_remedy(
    tmp_path: Path, board: str, absent: tuple[str, ...], text: str, remedy: str
) -> None:
    """One row fails, and says what to do."""
    failed = [one for one in judged(tmp_path, board, *absent) if one.level == "fail"]
    assert any(text in one.text and remedy in one.remedy for one in failed)


def test_board_without_ascend_has_no_rows(tmp_path: Path) -> None:
    """Nobody with a Rockchip board reads about Huawei."""
    assert judged(tmp_path, "rk3588") == []


@pytest.mark.parametrize("name", ["Ascend910.sock", "davinci-mini.sock"])
def test_foreign_plugin_is_seen_by_its_socket(tmp_path: Path, name: str) -> None:
    """Huawei's plugin beside this one means that each displaces the other."""
    folder = tmp_path / "device-plugins"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / name))
        found = list(kubelet.directory(tmp_path, {"huawei.com/Ascend910"}))
    (row,) = [finding for finding in found if finding.check == "other plugins"]
    assert row.level == "warn"
    assert name in row.text

"""Control groups on both versions."""

from pathlib import Path

import pytest

from ci.cluster import cgroups
from ci.cluster.cgroups import CgroupError

V1 = """\
31 23 0:28 / {0} rw - tmpfs tmpfs rw
33 31 0:30 / {0}/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / {0}/cpuset rw - cgroup cgroup rw,cpuset
35 31 0:32 / {0}/memory rw - cgroup cgroup rw,memory
41 31 0:38 / {0}/unified rw - cgroup2 cgroup2 rw
"""


def test_v2_is_one_tree_with_delegated_controllers(tmp_path: Path) -> None:
    """Every group on the way down hands its controllers on."""
    for folder in (tmp_path, tmp_path / "npu-a", tmp_path / "npu-a/node1"):
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        (folder / "cgroup.subtree_control").touch()
    found = cgroups.hierarchies(tmp_path)
    assert found.unified
    found.create("npu-a/node1")
    for folder in (tmp_path, tmp_path / "npu-a", tmp_path / "npu-a/node1"):
        assert (folder / "cgroup.subtree_control").read_text() == "+pids"


def test_v2_without_memory_is_explained(tmp_path: Path) -> None:
    """A missing controller is named, with where to look."""
    for folder in (tmp_path, tmp_path / "npu-a"):
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.controllers").write_text("cpuset cpu io pids\n")
        (folder / "cgroup.subtree_control").touch()
    with pytest.raises(CgroupError, match="lacks the controllers memory"):
        cgroups.hierarchies(tmp_path).create("npu-a")


def test_v1_has_a_tree_per_controller(tmp_path: Path) -> None:
    """Groups appear in each hierarchy, cpuset ones filled in; the mirror is only cleaned."""
    mountinfo = tmp_path / "mountinfo"
    mount = tmp_path / "cgroup"
    mountinfo.write_text(V1.format(mount))
    for name in ("cpu,cpuacct", "cpuset", "memory", "unified"):
        (mount / name).mkdir(parents=True)
    for folder in (mount / "cpuset", mount / "cpuset/npu-a"):
        folder.mkdir(exist_ok=True)
        for name, text in (("cpuset.cpus", "0-1\n"), ("cpuset.mems", "0\n")):
            (folder / name).write_text(text if folder.name == "cpuset" else "\n")
    found = cgroups.hierarchies(mount, mountinfo)
    assert not found.unified
    found.create("npu-a")
    assert (mount / "cpuset/npu-a/cpuset.cpus").read_text() == "0-1\n"
    assert (mount / "memory/npu-a").is_dir()
    assert not (mount / "unified/npu-a").exists()
    (mount / "unified/npu-a/pod").mkdir(parents=True)
    for file in (mount / "cpuset/npu-a").iterdir():
        file.unlink()
    found.remove("npu-a")
    assert not found.exists("npu-a")


def test_no_memory_hierarchy_is_explained(tmp_path: Path) -> None:
    """A machine without control groups is told so."""
    (tmp_path / "mountinfo").write_text("31 23 0:28 / /x rw - tmpfs tmpfs rw\n")
    with pytest.raises(CgroupError, match="no cgroup with a memory controller"):
        cgroups.hierarchies(tmp_path, tmp_path / "mountinfo")

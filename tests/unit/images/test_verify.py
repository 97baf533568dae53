"""The checks of an image that need only its list of files."""

import tarfile
from pathlib import Path

import pytest

from images.layer import write_layer
from images.oci import Process, compose
from images.packages import MODULES
from images.tree import File, Tree
from images.verify import file_complaints, modules, paper_complaints, plan

PROCESS = Process(entrypoint=("x",), environment={}, user="65532:65532")


def header(name: str, mode: int = 0o644, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.type = mode, kind
    return entry


def test_modules_are_named_by_their_place() -> None:
    """Packages, extension modules and plain modules; never entry points or data."""
    found = modules(
        [
            "usr/lib/python3.13/json/__init__.pyc",
            "usr/lib/python3.13/json/__main__.pyc",
            "usr/lib/python3.13/lib-dynload/_ssl.cpython-313-aarch64-linux-gnu.so",
            f"{MODULES}/google/_upb/_message.abi3.so",
            f"{MODULES}/plugin/page.html",
            f"{MODULES}/a-1.dist-info/METADATA",
            "usr/share/doc/x.py",
        ]
    )

    assert found == ("json", "_ssl", "google._upb._message")


def test_a_shared_layer_is_imported_once(tmp_path: Path) -> None:
    """The second image has only its own modules to import."""
    trees: dict[str, Tree] = {
        name: {f"{MODULES}/{name}.pyc": File(b"")} for name in ("base", "one", "two")
    }
    base, one, two = (write_layer(name, tree, tmp_path / name) for name, tree in trees.items())
    images = [compose("r", "amd64", [base, own], PROCESS, {}) for own in (one, two)]

    assert plan(images) == [("base", "one"), ("two",)]


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        (header("bin/su", 0o4755), "/bin/su has a set-id bit"),
        (header("bin/wall", 0o2755), "/bin/wall has a set-id bit"),
        (header("dev/null", kind=tarfile.CHRTYPE), "/dev/null is neither file, link nor folder"),
        (header("usr/bin/dash", 0o755), "/usr/bin/dash is a shell"),
        (header("bin/sh", 0o777, tarfile.SYMTYPE), "/bin/sh is a shell"),
    ],
)
def test_what_must_not_be_there(entry: tarfile.TarInfo, complaint: str) -> None:
    """Set-id files, devices and shells are found."""
    assert list(file_complaints([entry])) == [complaint]


def test_a_folder_named_like_a_shell_is_none() -> None:
    """Only what could be started counts."""
    assert not list(file_complaints([header("usr/share/sh", 0o755, tarfile.DIRTYPE)]))


def test_components_without_papers_are_named() -> None:
    """Each Debian package needs its terms, each Python package metadata and a licence."""
    headers = [
        header("var/lib/dpkg/status.d/libc6"),
        header(f"{MODULES}/a-1.dist-info", kind=tarfile.DIRTYPE),
    ]

    assert list(paper_complaints(headers)) == [
        f"no metadata in /{MODULES}/a-1.dist-info",
        f"no licence in /{MODULES}/a-1.dist-info",
        "no terms of Debian package libc6",
    ]


def test_components_with_papers_pass() -> None:
    """Terms may be a link into the folder of a related package."""
    headers = [
        header("var/lib/dpkg/status.d/libc6"),
        header("usr/share/doc/libc6/copyright"),
        header("var/lib/dpkg/status.d/libgcc-s1"),
        header("usr/share/doc/libgcc-s1", kind=tarfile.SYMTYPE),
        header(f"{MODULES}/a-1.dist-info", kind=tarfile.DIRTYPE),
        header(f"{MODULES}/a-1.dist-info/METADATA"),
        header(f"{MODULES}/a-1.dist-info/licenses/LICENSE"),
    ]

    assert not list(paper_complaints(headers))

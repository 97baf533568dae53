"""Wheels for another platform: the lock's lines and the tags asked for."""

import zipfile
from pathlib import Path

import pytest

from images import wheels
from images.packages import placed, wheel_tree
from images.tree import File, TreeError

TEXT = """\
# comment
Jinja2==3.1.6 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via something
typing.extensions==4.16.0 --hash=sha256:cc
"""


def test_requirements_are_read_with_their_hashes() -> None:
    """Names are normalized, continuation lines and comments understood."""
    found = wheels.parse(TEXT)

    assert found == {
        "jinja2": wheels.Requirement(
            name="jinja2", version="3.1.6", hashes=("sha256:aa", "sha256:bb")
        ),
        "typing-extensions": wheels.Requirement(
            name="typing-extensions", version="4.16.0", hashes=("sha256:cc",)
        ),
    }
    assert found["jinja2"].line() == "jinja2==3.1.6 --hash=sha256:aa --hash=sha256:bb"


def test_the_shipped_lock_pins_hashes() -> None:
    """Pip refuses a requirement without one; it shall fail here, not in a build."""
    text = (Path(__file__).resolve().parents[3] / "requirements" / "runtime.txt").read_text()

    assert all(one.hashes for one in wheels.parse(text).values())


def test_tags_end_at_the_glibc_of_the_base() -> None:
    """The newest tag is what Debian 13 runs, the oldest what wheels are still tagged with."""
    tags = wheels.platforms("arm64")

    assert tags[0] == "manylinux_2_41_aarch64"
    assert tags[-2:] == ["manylinux_2_17_aarch64", "manylinux2014_aarch64"]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("PyYAML-6.0-cp313-cp313-manylinux_2_28_aarch64.whl", "pyyaml"),
        ("prometheus_client-0.26.0-py3-none-any.whl", "prometheus-client"),
    ],
)
def test_names_of_wheels(file: str, name: str) -> None:
    """Wheels spell names with underscores and capitals (PEP 427)."""
    assert wheels.wheel_name(Path(file)) == name


def write_wheel(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, name)
    return path


def test_a_wheel_becomes_a_tree(tmp_path: Path) -> None:
    """Library data is put in its place, scripts are dropped, nothing is executable."""
    wheel = write_wheel(
        tmp_path / "a.whl", "a/b.py", "a-1.data/purelib/c.py", "a-1.data/scripts/run"
    )

    assert placed(wheel_tree(wheel)) == {
        "usr/local/lib/python3.13/dist-packages/a/b.py": File(b"a/b.py"),
        "usr/local/lib/python3.13/dist-packages/c.py": File(b"a-1.data/purelib/c.py"),
    }


def test_a_wheel_with_other_data_is_refused(tmp_path: Path) -> None:
    """Headers and system files have no place: better loud than lost."""
    wheel = write_wheel(tmp_path / "a.whl", "a-1.data/headers/a.h")

    with pytest.raises(TreeError, match=r"no place in an image for a-1\.data/headers/a\.h"):
        wheel_tree(wheel)

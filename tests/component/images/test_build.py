"""Builds with the real packages: the same twice, and bytecode of the images' own Python."""

import os
from pathlib import Path

import pytest

from ci.cache import cache_dir
from ci.command import CommandError
from ci.debian import host_architecture
from images.build import Builder
from images.oci import Image
from images.services import SERVICES
from images.toolchain import Toolchain
from images.tree import File, Link

CHECKOUT = Path(__file__).resolve().parents[3]
# CPython 3.13's magic number (Include/internal/pycore_magic_number.h).
MAGIC = (3571).to_bytes(2, "little") + b"\r\n"


def image(builder: Builder, service: str) -> Image:
    return builder.image(SERVICES[service], registry="localhost/npu-platform", tag="test")


def test_two_builds_give_the_same_image(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another folder and another umask change no byte of a plugin image."""
    monkeypatch.setenv("NPU_PLATFORM_REVISION", "same")
    first = image(builder, "plugin")
    old = os.umask(0o077)
    try:
        again = Builder(CHECKOUT, cache_dir(), host_architecture(), layers=tmp_path)
        second = image(again, "plugin")
    finally:
        os.umask(old)

    assert [one.diff_id for one in second.layers] == [one.diff_id for one in first.layers]
    assert second.manifest == first.manifest
    assert not {one.path for one in first.layers} & {one.path for one in second.layers}


def test_services_share_what_they_have_in_common(builder: Builder) -> None:
    """Plugin and exporter stand on the same base, common and gRPC layers."""
    plugin, exporter = image(builder, "plugin"), image(builder, "exporter")

    assert [one.diff_id for one in plugin.layers[:3]] == [
        one.diff_id for one in exporter.layers[:3]
    ]


@pytest.fixture
def tools(builder: Builder) -> Toolchain:
    return builder.tools()


def test_sources_become_bytecode(tools: Toolchain) -> None:
    """Named after the source's final path, unchecked, without docstrings; other files stay."""
    tree = {"usr/lib/a.py": File(b'"""Docs."""\nX = 1\n'), "usr/lib/a.txt": File(b"text")}

    made = tools.compile_sources(tree)

    assert made.keys() == {"usr/lib/a.pyc", "usr/lib/a.txt"}
    code = made["usr/lib/a.pyc"]
    assert isinstance(code, File)
    assert code.data[:8] == MAGIC + (1).to_bytes(4, "little")
    assert b"/usr/lib/a.py" in code.data
    assert b"Docs." not in code.data


def test_links_to_sources_follow(tools: Toolchain) -> None:
    """A link between modules leads to the bytecode afterwards."""
    made = tools.compile_sources({"a.py": File(b""), "b.py": Link("a.py")})

    assert made["b.pyc"] == Link("a.pyc")


def test_a_syntax_error_names_the_file(tools: Toolchain) -> None:
    """The build fails with the line that Python prints."""
    with pytest.raises(CommandError, match=r"/usr/lib/broken\.py"):
        tools.compile_sources({"usr/lib/broken.py": File(b"def (:\n")})


def test_kept_sources_stay_readable(tools: Toolchain) -> None:
    """An example that people read in the image remains a source."""
    tree = {"sample.py": File(b"X = 1\n")}

    assert tools.compile_sources(tree, keep=["sample.py"]) == tree

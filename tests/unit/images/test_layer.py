"""Layers: bytes that depend on the tree alone."""

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.layer import Store, compressed, key_of, write_layer, write_tar
from images.tree import File, Folder, Link, Tree

TREE: Tree = {
    "usr/bin/python3.13": File(b"program", executable=True),
    "etc/passwd": File(b"root"),
    "lib": Link("usr/lib"),
    "usr/lib": Folder(),
    "tmp": Folder(shared=True),
}


def tar_of(tree: Tree) -> bytes:
    target = io.BytesIO()
    write_tar(tree, target)
    return target.getvalue()


def headers(tree: Tree) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(tar_of(tree))) as archive:
        return {entry.name: entry for entry in archive}


def test_owner_and_time_are_nobodys() -> None:
    """No entry tells who built it, or when."""
    for entry in headers(TREE).values():
        assert (entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime) == (0, 0, "", "", 0)


def test_modes_come_from_the_kind_of_node() -> None:
    """Programs 0755, files 0644, folders 0755, shared folders 1777."""
    modes = {name: entry.mode for name, entry in headers(TREE).items()}

    assert modes == {
        "etc": 0o755,
        "etc/passwd": 0o644,
        "lib": 0o777,
        "tmp": 0o1777,
        "usr": 0o755,
        "usr/bin": 0o755,
        "usr/bin/python3.13": 0o755,
        "usr/lib": 0o755,
    }


def test_folders_come_before_what_is_in_them() -> None:
    """An importer that unpacks in order finds each parent."""
    names = list(headers(TREE))

    assert names == sorted(names)


@given(st.permutations(list(TREE.items())))
def test_the_order_of_building_does_not_show(items: list[tuple[str, object]]) -> None:
    """Any order of insertion gives the same bytes."""
    assert tar_of(dict(items)) == tar_of(TREE)  # type: ignore[arg-type]


def test_umask_and_folder_do_not_show(tmp_path: Path) -> None:
    """Two builders with other settings and other folders write the same layer."""
    (tmp_path / "other").mkdir()
    old = os.umask(0o077)
    try:
        first = write_layer("x", TREE, tmp_path / "one")
    finally:
        os.umask(old)
    second = write_layer("x", TREE, tmp_path / "other" / "two")

    assert (first.digest, first.diff_id) == (second.digest, second.diff_id)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other" / "two").read_bytes()


def test_the_gzip_header_is_empty() -> None:
    """Neither flags for a file name nor a time (RFC 1952)."""
    header = compressed(b"data")[:10]

    assert header[:4] == b"\x1f\x8b\x08\x00"
    assert header[4:8] == b"\0\0\0\0"


def test_sizes_are_those_of_blob_and_files(tmp_path: Path) -> None:
    """Compressed counts the blob, unpacked the bytes of files."""
    layer = write_layer("x", TREE, tmp_path / "blob")

    assert layer.compressed_bytes == (tmp_path / "blob").stat().st_size
    assert layer.unpacked_bytes == len(b"program") + len(b"root")


def test_a_stored_layer_is_made_once(tmp_path: Path) -> None:
    """The second request for a key gets the same layer without making a tree."""
    made = Store(tmp_path).provide("x", "key", lambda: TREE)

    def never() -> Tree:
        pytest.fail("made again")

    assert Store(tmp_path).provide("x", "key", never) == made


def test_a_failed_layer_leaves_nothing(tmp_path: Path) -> None:
    """An error while making a tree must not be found as a layer later."""

    def broken() -> Tree:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Store(tmp_path).provide("x", "key", broken)

    assert list(tmp_path.iterdir()) == []


def test_keys_tell_inputs_apart() -> None:
    """Another version of a package is another key; the order of a table is not."""
    assert key_of("base", {"a": "1", "b": "2"}) == key_of("base", {"b": "2", "a": "1"})
    assert key_of("base", {"a": "1"}) != key_of("base", {"a": "2"})

"""Prune lists: their grammar and the ones that ship."""

from pathlib import Path

import pytest

from images.pruning import PruneError, load, parse, prune
from images.tree import File, Tree

LISTS = sorted((Path(__file__).resolve().parents[3] / "images" / "prune").glob("*.txt"))


def left(text: str, *paths: str) -> set[str]:
    tree: Tree = {path: File(b"") for path in paths}
    kept, _ = prune(tree, parse(text, source="list"))
    return set(kept)


@pytest.mark.parametrize(
    ("pattern", "gone", "stays"),
    [
        ("usr/man", "usr/man/a/b", "usr/manual"),
        ("usr/*/gconv", "usr/x/gconv/a.so", "usr/x/y/gconv/a.so"),
        ("**/tests", "a/b/tests/c.py", "a/tests.py"),
        ("**/tests", "tests/c.py", "mytests/c.py"),
        ("*.dist-info/RECORD", "a.dist-info/RECORD", "b/a.dist-info/RECORD"),
        ("a/x?.so", "a/x1.so", "a/x12.so"),
        ("a/lib+.so", "a/lib+.so", "a/libb.so"),
    ],
)
def test_patterns(pattern: str, gone: str, stays: str) -> None:
    """One star stays in a folder, two cross folders, a folder takes its content along."""
    assert left(f"{pattern}  # reason", gone, stays) == {stays}


def test_a_later_line_takes_back() -> None:
    """Licence terms survive the removal of the documentation around them."""
    text = "doc/**  # size\n!doc/*/copyright  # terms\n"

    assert left(text, "doc/a/copyright", "doc/a/changelog") == {"doc/a/copyright"}


def test_the_last_line_decides() -> None:
    """Order is meaning: what is taken back can be removed again."""
    assert left("a/**  # x\n!a/b  # y\na/b/c  # z\n", "a/b/c", "a/b/d") == {"a/b/d"}


def test_unused_lines_can_be_told() -> None:
    """The lines that matched are returned, so that stale ones show."""
    _, used = prune({"a": File(b"")}, parse("a  # x\n\nb  # y\n", source="list"))

    assert used == {1}


@pytest.mark.parametrize("line", ["usr/man", "usr/man  #", "usr/man # one blank only"])
def test_a_line_without_a_reason_is_refused(line: str) -> None:
    """The error names list and line."""
    with pytest.raises(PruneError, match="list:1: expected"):
        parse(line, source="list")


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.name)
def test_shipped_lists_are_sound(path: Path) -> None:
    """Each pattern stands once and is a relative path."""
    patterns = [(rule.pattern, rule.keep) for rule in load(path)]

    assert len(patterns) == len(set(patterns)) > 0
    assert not [pattern for pattern, _ in patterns if pattern.startswith("/")]

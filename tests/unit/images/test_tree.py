"""Trees: laying over each other, links, folders."""

import pytest

from images.tree import (
    File,
    Folder,
    Link,
    Tree,
    TreeError,
    dangling,
    merge,
    with_parents,
    without_empty_folders,
)


def test_merge_accepts_the_same_file_twice() -> None:
    """Two packages may deliver the same folder or the same content."""
    one: Tree = {"usr": Folder(), "usr/a": File(b"1")}

    assert merge([one, one]) == one


def test_merge_refuses_two_contents_for_a_path() -> None:
    """The error names the path: dpkg would have refused too."""
    with pytest.raises(TreeError, match="/usr/a is delivered twice"):
        merge([{"usr/a": File(b"1")}, {"usr/a": File(b"2")}])


def test_parents_are_spelled_out() -> None:
    """Every folder above a file becomes an entry of its own."""
    assert with_parents({"usr/lib/a": File(b"")}) == {
        "usr": Folder(),
        "usr/lib": Folder(),
        "usr/lib/a": File(b""),
    }


def test_nothing_lies_below_a_link() -> None:
    """A path through a link would unpack somewhere else than it says."""
    with pytest.raises(TreeError, match="/lib/a lies below /lib"):
        with_parents({"lib": Link("usr/lib"), "lib/a": File(b"")})


@pytest.mark.parametrize(
    "target", ["usr/lib", "/usr/lib", "./usr/lib/../lib", "usr/lib/a", "usr/link"]
)
def test_links_that_lead_somewhere(target: str) -> None:
    """Relative, absolute and chained targets are followed."""
    tree: Tree = {"usr/lib/a": File(b""), "usr/link": Link("lib/a"), "x": Link(target)}

    assert dangling(tree) == []


@pytest.mark.parametrize("target", ["nowhere", "/usr/nowhere", "x"])
def test_links_that_lead_nowhere(target: str) -> None:
    """A lost target and a loop are both reported with path and target."""
    assert dangling({"usr/lib/a": File(b""), "x": Link(target)}) == [f"/x -> {target}"]


def test_empty_folders_go_unless_wanted() -> None:
    """Kept are folders above files, named ones, and those with modes of their own."""
    tree: Tree = {
        "boot": Folder(),
        "proc": Folder(),
        "tmp": Folder(shared=True),
        "usr": Folder(),
        "usr/a": File(b""),
    }

    assert without_empty_folders(tree, ["proc"]).keys() == {"proc", "tmp", "usr", "usr/a"}

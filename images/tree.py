"""Files of an image as data, before they become a layer.

Nothing is laid out on a disk on the way: owners, times, umask and file system of the building
machine cannot reach the result.
"""

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class File:
    """A regular file; mode 0755 when ``executable``, else 0644, never a set-id bit."""

    data: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder; mode 1777 when ``shared`` (as ``/tmp``), else 0755."""

    shared: bool = False


Node: TypeAlias = File | Link | Folder

#: Nodes by path; paths have no leading slash.
Tree: TypeAlias = dict[str, Node]


class TreeError(ValueError):
    """Parts of an image contradict each other."""


def merge(trees: Iterable[Mapping[str, Node]]) -> Tree:
    """Lay trees over each other; the same path with another content is an error."""
    merged: Tree = {}
    for tree in trees:
        for path, node in tree.items():
            if merged.setdefault(path, node) != node:
                message = f"/{path} is delivered twice with different content"
                raise TreeError(message)
    return merged


def parents(path: str) -> Iterator[str]:
    """Yield the folders above ``path``, the outermost first."""
    words = path.split("/")[:-1]
    for length in range(1, len(words) + 1):
        yield "/".join(words[:length])


def with_parents(tree: Mapping[str, Node]) -> Tree:
    """Return ``tree`` with every folder above its nodes spelled out."""
    whole: Tree = {above: Folder() for path in tree for above in parents(path)}
    whole.update(tree)
    for path in tree:
        for above in parents(path):
            if not isinstance(whole[above], Folder):
                message = f"/{path} lies below /{above}, which is not a folder"
                raise TreeError(message)
    return whole


def without_empty_folders(tree: Mapping[str, Node], keep: Iterable[str]) -> Tree:
    """Drop folders that hold nothing, except those in ``keep`` and those with shared modes."""
    used = {above for path, node in tree.items() if _counts(node) for above in parents(path)}
    used.update(keep)
    return {
        path: node
        for path, node in tree.items()
        if not isinstance(node, Folder) or node.shared or path in used
    }


def _counts(node: Node) -> bool:
    return not isinstance(node, Folder) or node.shared


def dangling(tree: Mapping[str, Node]) -> list[str]:
    """Return the links that lead nowhere within ``tree``, as ``path -> target``."""
    whole = with_parents(tree)
    return [
        f"/{path} -> {node.target}"
        for path, node in sorted(tree.items())
        if isinstance(node, Link) and resolve(whole, path) is None
    ]


def resolve(tree: Mapping[str, Node], path: str) -> str | None:
    """Return the path of what ``path`` leads to through any links, or None.

    ``tree`` must spell out its folders, see ``with_parents``.
    """
    budget = 40  # the kernel's own limit, MAXSYMLINKS
    todo = path.split("/")
    done: list[str] = []
    while todo:
        word = todo.pop(0)
        if word in ("", "."):
            continue
        if word == "..":
            done = done[:-1]
            continue
        node = tree.get("/".join([*done, word]))
        if isinstance(node, Link):
            budget -= 1
            if budget < 0:
                return None
            if node.target.startswith("/"):
                done = []
            todo = [*posixpath.normpath(node.target).split("/"), *todo]
        elif node is None:
            return None
        else:
            done.append(word)
    return "/".join(done)

"""Boards written into a temporary directory, for tests of everything that reads one."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pytest

from npu import catalogue
from npu.host import Host, Reader, read_bounded
from npu.layout import expand
from npu.tree import materialise

BOARDS = Path(__file__).parents[2] / "boards"


class MakeBoard(Protocol):
    """Writes a board and returns a host for it."""

    def __call__(
        self,
        name: str,
        changes: Mapping[str, bytes | None] | None = None,
        *,
        node_prefix: str = "",
        reader: Reader = read_bounded,
    ) -> Host:
        """Write board ``name``; ``changes`` are new contents, None removes a file or a subtree."""


@pytest.fixture
def make_board(tmp_path: Path) -> MakeBoard:
    def make(
        name: str,
        changes: Mapping[str, bytes | None] | None = None,
        *,
        node_prefix: str = "",
        reader: Reader = read_bounded,
    ) -> Host:
        root = tmp_path / name
        board = catalogue.load(name, BOARDS)
        materialise(expand(board), root, device_nodes=False)
        for path, content in (changes or {}).items():
            change(root / path.lstrip("/"), content)
        return Host(root, node_prefix, reader)

    return make


def change(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    elif path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()

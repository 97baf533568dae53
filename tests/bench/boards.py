"""Boards larger than any that exists, for measurements."""

from npu import catalogue
from npu.layout import Tree, expand

_UNIT, _CARD, _RENDER = "fdab0000", "card1", "renderD129"


def several(devices: int) -> Tree:
    """Return an RK3588 board with so many NPUs, each with a unit, DRM nodes and a clock."""
    board = expand(catalogue.load("rk3588"))
    made = Tree(files=dict(board.files), links=dict(board.links), nodes=dict(board.nodes))
    for number in range(1, devices):

        def renamed(text: str, number: int = number) -> str:
            for old, new in (
                (_UNIT, f"fdab{number:04x}"),
                (_CARD, f"card{10 + number}"),
                (_RENDER, f"renderD{138 + number}"),
            ):
                text = text.replace(old, new)
            return text

        made.files |= {
            renamed(path): renamed(content.decode()).encode()
            for path, content in board.files.items()
            if renamed(path) != path
        }
        made.links |= {
            renamed(path): renamed(target)
            for path, target in board.links.items()
            if renamed(path) != path
        }
        made.nodes |= {
            renamed(path): node for path, node in board.nodes.items() if renamed(path) != path
        }
    return made

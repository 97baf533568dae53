"""Where the operators of a model ran, from the text that librknnrt makes of it.

``rknn_query`` with ``RKNN_QUERY_PERF_DETAIL`` answers with a table for people. Its first columns
are the same in all releases (number, type, data type, target, shapes); then releases differ, and
so the columns are found by their heads.
"""

import re

from inference.backends import Operator

#: Operators that move data between the program and the NPU: every model has them on the CPU.
TRANSFERS = frozenset({"InputOperator", "OutputOperator"})
_LOG_PREFIX = re.compile(r"^[DIWE] RKNN: \[[0-9:.]+\] ?")
#: Heads of two words.
_TWO_WORDS = re.compile(r"\b(DDR|NPU|Total) (Cycles)\b")
_TARGET, _KIND, _TIME = "Target", "OpType", "Time(us)"


def operators(text: str) -> tuple[Operator, ...]:
    """Return the operators in the order of the table; none where there is no table to read."""
    columns: dict[str, int] | None = None
    found: list[Operator] = []
    for line in text.splitlines():
        words = _TWO_WORDS.sub(r"\1\2", _LOG_PREFIX.sub("", line)).split()
        if not words:
            continue
        if words[0] == "ID" and {_KIND, _TARGET} <= set(words):
            columns = {word: place for place, word in reversed(list(enumerate(words)))}
        elif columns is not None and words[0].isdigit() and len(words) > columns[_TARGET]:
            found.append(
                Operator(
                    kind=words[columns[_KIND]],
                    target=words[columns[_TARGET]].lower(),
                    seconds=_seconds(words, columns.get(_TIME)),
                )
            )
    return tuple(found)


def _seconds(words: list[str], place: int | None) -> float:
    if place is None or place >= len(words) or not words[place].isdigit():
        return 0.0
    return int(words[place]) / 1e6

"""The queries of dashboards as PromQL: variables replaced, parsed, and walked with context."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import promql_parser

from ci.chart import Json

#: What Grafana would put in; any value that parses will do for a linter.
PLACEHOLDERS = {"__rate_interval": "61s", "__range": "3601s", "__interval": "59s"}
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::\w+)?\}|(\w*[a-zA-Z_]\w*))")
#: A node of the parser's tree: it has no types of its own.
_Node = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """A series that a query reads: its matchers, the range, and the functions around it.

    ``functions`` are innermost first; ``range_seconds`` is None for the value at an instant.
    """

    name: str
    matchers: Mapping[str, tuple[str, ...]]
    range_seconds: float | None
    functions: tuple[str, ...]


def targets(dashboard: Json) -> Iterator[tuple[str, Json, Json]]:
    """Yield title of the panel, panel and target for every query of the panels."""
    for panel in panels(dashboard):
        for target in panel.get("targets", []):
            yield panel["title"], panel, target


def panels(dashboard: Json) -> Iterator[Json]:
    """Yield all panels but rows, those inside collapsed rows too."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels", [])
        else:
            yield panel


def replaced(expr: str, values: Mapping[str, str]) -> str:
    """Return the expression with Grafana's variables replaced; ``$1`` of PromQL stays.

    Raises KeyError for a variable without a value.
    """
    return _VARIABLE.sub(lambda found: values[found[1] or found[2]], expr)


def variables(expr: str) -> set[str]:
    """Return the names of Grafana's variables in an expression."""
    return {braced or bare for braced, bare in _VARIABLE.findall(expr)}


def selectors(expr: str) -> list[Selector]:
    """Return the series that an expression reads; raises ValueError where it is no PromQL."""
    stood_in = dict.fromkeys(variables(expr), "x") | PLACEHOLDERS
    tree = promql_parser.parse(replaced(expr, stood_in))
    return list(_walk(tree, (), None))


def _walk(
    node: _Node, functions: tuple[str, ...], range_seconds: float | None
) -> Iterator[Selector]:
    match type(node).__name__:
        case "VectorSelector":
            matchers: dict[str, tuple[str, ...]] = {}
            for matcher in node.matchers.matchers:
                matchers[matcher.name] = (*matchers.get(matcher.name, ()), matcher.value)
            name = node.name or "".join(matchers.get("__name__", ()))
            yield Selector(
                name=name, matchers=matchers, range_seconds=range_seconds, functions=functions
            )
        case "MatrixSelector":
            yield from _walk(node.vector_selector, functions, node.range.total_seconds())
        case "Call":
            for argument in node.args:
                yield from _walk(argument, (node.func.name, *functions), range_seconds)
        case "BinaryExpr":
            yield from _walk(node.lhs, functions, range_seconds)
            yield from _walk(node.rhs, functions, range_seconds)
        case "NumberLiteral" | "StringLiteral":
            return
        case _:
            yield from _walk(node.expr, functions, range_seconds)

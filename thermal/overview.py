"""What the fleet page shows: rows, filtered, sorted and cut into pages. Pure.

Whatever a visitor writes into the address is either one of the choices or text that is searched
for; anything else is the default.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from npu.heat import Heat, severity
from thermal.fleet import NodeStatus
from thermal.judging import Judgement

_SIZES = (50, 100, 200, 500)
_SEARCH_LIMIT = 253
_DIGITS = 6
_KEPT = {"NoSchedule": "closed", "PreferNoSchedule": "avoided"}
#: Shown for nodes whose NPU has no usable driver, beside the heat states.
NO_DRIVER = "no driver"
#: Shown for nodes about which nothing is said yet.
STARTING = "starting"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node. ``kept`` is what keeps work away now: "closed", "avoided" or nothing."""

    node: str
    state: str
    celsius: float | None
    hot_celsius: float | None
    devices: int
    models: str
    kept: str
    since: str
    age_seconds: float | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading: what it sorts by, and the address that does."""

    title: str
    key: str
    address: str
    direction: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A link with a number of nodes behind it."""

    title: str
    count: int
    address: str
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The page. ``matching`` rows fit the filter, ``rows`` are those of this page."""

    total: int
    matching: int
    rows: tuple[NodeRow, ...]
    columns: tuple[Column, ...]
    states: tuple[Choice, ...]
    search: str
    hidden: tuple[tuple[str, str], ...]
    page: int
    pages: int
    before: str | None
    after: str | None
    budgets: tuple[str, ...]
    storms: tuple[str, ...]


_Key = Callable[[NodeRow], tuple[object, ...]]

_RANKS = {STARTING: -1, NO_DRIVER: -2} | {heat.value: severity(heat) for heat in Heat}
_COLUMNS: Sequence[tuple[str, str]] = (
    ("node", "Node"),
    ("state", "State"),
    ("celsius", "Hottest device"),
    ("kept", "New work"),
    ("model", "NPU"),
    ("since", "Since"),
    ("age", "Reading"),
)
_KEYS: Mapping[str, _Key] = {
    "node": lambda row: (row.node,),
    "state": lambda row: (_RANKS.get(row.state, 0), row.celsius or 0.0),
    "celsius": lambda row: (-1000.0 if row.celsius is None else row.celsius,),
    "kept": lambda row: (row.kept,),
    "model": lambda row: (row.models,),
    "since": lambda row: (row.since,),
    "age": lambda row: (-1.0 if row.age_seconds is None else row.age_seconds,),
}
#: Columns of which the largest value is the interesting one.
_FALLING = frozenset({"state", "celsius", "since", "age", "kept"})


def overview(judgement: Judgement, query: Mapping[str, Sequence[str]]) -> Overview:
    """Return the page for a query."""
    rows = [
        _row(status, judgement.applied.get(name), judgement.remarks.get(name, ()))
        for name, status in judgement.statuses.items()
    ]
    rows += [
        _undriven(name, reasons)
        for name, reasons in judgement.undriven.items()
        if name not in judgement.statuses
    ]
    chosen = _Query(query)
    counts = Counter(row.state for row in rows)
    found = [
        row
        for row in rows
        if chosen.search.lower() in row.node.lower() and chosen.state in ("", row.state)
    ]
    found.sort(key=lambda row: row.node)
    found.sort(key=_KEYS[chosen.sort], reverse=chosen.falling)
    pages = max(1, -(-len(found) // chosen.size))
    page = min(chosen.page, pages)
    return Overview(
        total=len(rows),
        matching=len(found),
        rows=tuple(found[(page - 1) * chosen.size : page * chosen.size]),
        columns=tuple(_column(chosen, key, title) for key, title in _COLUMNS),
        states=(
            Choice(
                title="all",
                count=len(rows),
                address=chosen.address(state="", page=1),
                chosen=not chosen.state,
            ),
            *(
                Choice(
                    title=state,
                    count=counts[state],
                    address=chosen.address(state=state, page=1),
                    chosen=state == chosen.state,
                )
                for state in sorted(counts, key=lambda name: -_RANKS.get(name, 0))
            ),
        ),
        search=chosen.search,
        hidden=tuple(chosen.parts(search="", page=1).items()),
        page=page,
        pages=pages,
        before=chosen.address(page=page - 1) if page > 1 else None,
        after=chosen.address(page=page + 1) if page < pages else None,
        budgets=tuple(
            f"{group.name or 'nodes'}: {judgement.restrained.used.get(group, 0)} of {limit}"
            for group, limit in sorted(judgement.restrained.limits.items())
        ),
        storms=tuple(
            f"{group.kind} {group.name}".strip() for group in sorted(judgement.restrained.storms)
        ),
    )


class _Query:
    """The choices in an address."""

    def __init__(self, query: Mapping[str, Sequence[str]]) -> None:
        def first(name: str) -> str:
            values = query.get(name) or [""]
            return values[0].strip()

        sort, size, page = first("sort"), first("size"), first("page")
        self.search = first("search")[:_SEARCH_LIMIT]
        self.state = first("state") if first("state") in _RANKS else ""
        self.sort = sort if sort in _KEYS else "state"
        order = first("order")
        self.falling = order == "desc" if order in ("asc", "desc") else self.sort in _FALLING
        self.size = next((n for n in _SIZES if str(n) == size), _SIZES[1])
        self.page = int(page) if page.isascii() and page.isdigit() and len(page) <= _DIGITS else 1
        self.page = max(1, self.page)

    def parts(self, **changes: object) -> dict[str, str]:
        """Return the parameters of an address, the defaults left out."""
        order = "desc" if self.falling else "asc"
        mine = {
            "search": self.search,
            "state": self.state,
            "sort": self.sort,
            "order": order,
            "size": self.size,
            "page": self.page,
        }
        values = {name: str(value) for name, value in (mine | changes).items()}
        defaults = {"search": "", "state": "", "sort": "state", "size": "100", "page": "1"}
        defaults["order"] = "desc" if values["sort"] in _FALLING else "asc"
        return {name: value for name, value in values.items() if value != defaults[name]}

    def address(self, **changes: object) -> str:
        """Return the address of this page with some choices changed."""
        return "?" + urlencode(self.parts(**changes))


def _column(chosen: _Query, key: str, title: str) -> Column:
    if key != chosen.sort:
        order = "desc" if key in _FALLING else "asc"
        return Column(
            title=title,
            key=key,
            address=chosen.address(sort=key, order=order, page=1),
            direction=None,
        )
    return Column(
        title=title,
        key=key,
        address=chosen.address(order="asc" if chosen.falling else "desc", page=1),
        direction="descending" if chosen.falling else "ascending",
    )


def _row(status: NodeStatus, effect: str | None, remarks: Sequence[str]) -> NodeRow:
    decision = status.decision
    devices = () if decision is None else decision.devices
    known = [
        device.celsius
        for device in devices
        if device.celsius is not None and device.state is not Heat.UNKNOWN
    ]
    notes = [] if status.problem is None else [status.problem]
    if decision is not None:
        if decision.condition is not None and decision.condition.status != "False":
            notes.append(decision.condition.reason)
        notes += [f"held back: {reason}" for reason in decision.held_back]
    if any(sample.simulated for sample in status.devices):
        notes.append("simulated")
    return NodeRow(
        node=status.node,
        state=STARTING if decision is None else decision.state.value,
        celsius=max(known, default=None),
        hot_celsius=status.limits.hot_celsius,
        devices=len(status.devices),
        models=", ".join(sorted({sample.model for sample in status.devices if sample.model})),
        kept=_KEPT.get(effect or "", ""),
        since=status.since,
        age_seconds=status.sample_age_seconds,
        notes=(*notes, *remarks),
    )


def _undriven(name: str, reasons: Sequence[str]) -> NodeRow:
    return NodeRow(
        node=name,
        state=NO_DRIVER,
        celsius=None,
        hot_celsius=None,
        devices=0,
        models="",
        kept="",
        since="",
        age_seconds=None,
        notes=tuple(reasons),
    )

"""What the guard answers over HTTP besides probes: metrics, the fleet as page and as JSON."""

import base64
import hashlib
import json
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.http import Handler, Request, Response
from daemon.version import VERSION
from npu.heat import Heat
from thermal.fleet import NodeStatus
from thermal.journal import Entry, Journal
from thermal.judging import Judgement
from thermal.metrics import Metrics
from thermal.overview import overview

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

_TEMPLATES = Path(__file__).parent / "templates"
_SCRIPT = (_TEMPLATES / "fleet.js").read_text(encoding="utf-8")
_SCRIPT_HASH = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
_HEADERS = {
    # Nothing but the page itself: its own script by its hash, which may ask its own server only.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline';"
    f" script-src 'sha256-{_SCRIPT_HASH}'; connect-src 'self'; base-uri 'none'; form-action 'self';"
    " frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
}
_DECISIONS_LIMIT = 2000
_DIGITS = 7
_TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"


def metrics_page(metrics: Metrics) -> Handler:
    """Return the handler of ``/metrics``."""

    def answer(_request: Request) -> Response:
        return Response(body=metrics.exposition(), content_type=_TEXT_FORMAT)

    return answer


def nodes_page(
    judgement: Callable[[], Judgement | None], holder: Callable[[], str | None]
) -> Handler:
    """Return the handler of ``/api/v1/nodes``; a standby says who leads."""

    def answer(_request: Request) -> Response:
        current = judgement()
        if current is None:
            body: dict[str, object] = {"leader": False, "holder": holder()}
            return _json(body, HTTPStatus.SERVICE_UNAVAILABLE)
        nodes = [
            _node(status, current.applied.get(name))
            for name, status in sorted(current.statuses.items())
        ]
        return _json({"leader": True, "nodes": nodes})

    return answer


def decisions_page(
    journal: Journal,
    judgement: Callable[[], Judgement | None],
    holder: Callable[[], str | None],
) -> Handler:
    """Return the handler of ``/api/v1/decisions``: the newest first, ``?node=`` of one node.

    ``?limit=`` is 200 unless given, 2000 at most. Only the leader has decided anything.
    """

    def answer(request: Request) -> Response:
        if judgement() is None:
            body: dict[str, object] = {"leader": False, "holder": holder()}
            return _json(body, HTTPStatus.SERVICE_UNAVAILABLE)
        node = (request.query.get("node") or [""])[0] or None
        asked = (request.query.get("limit") or [""])[0]
        limit = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < _DIGITS else 200
        entries = journal.entries(node=node, limit=min(limit, _DECISIONS_LIMIT))
        return _json({"leader": True, "decisions": [_entry(entry) for entry in entries]})

    return answer


def fleet_page(
    judgement: Callable[[], Judgement | None], holder: Callable[[], str | None], *, mode: str
) -> Handler:
    """Return the handler of ``/``; a standby says who leads."""

    def answer(request: Request) -> Response:
        current = judgement()
        html = _template().render(
            fleet=None if current is None else overview(current, request.query),
            holder=holder(),
            mode=mode,
            version=VERSION,
            script=_markup(_SCRIPT),
        )
        return Response(
            body=html.encode(),
            status=HTTPStatus.SERVICE_UNAVAILABLE if current is None else HTTPStatus.OK,
            content_type="text/html; charset=utf-8",
            headers=_HEADERS,
        )

    return answer


def _markup(text: str) -> "Markup":
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 - a file of ours, nothing from outside in it


@cache
def _template() -> "jinja2.Template":
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    return environment.from_string((_TEMPLATES / "fleet.html").read_text(encoding="utf-8"))


def _entry(entry: Entry) -> dict[str, object]:
    return {
        "at": entry.at,
        "kind": entry.kind,
        "node": entry.node,
        "reason": entry.reason,
        "text": entry.text,
    }


def _node(status: NodeStatus, effect: str | None) -> dict[str, object]:
    decision = status.decision
    shown_node: dict[str, object] = {
        "node": status.node,
        "state": None if decision is None else decision.state.value,
        "since": status.since or None,
        "sampleAgeSeconds": round(status.sample_age_seconds, 1),
        "problem": status.problem,
        "thresholdsCelsius": status.limits.named(),
        "taint": effect,
        "devices": [],
    }
    if decision is not None:
        shown_node["heldBack"] = list(decision.held_back)
        shown_node["reason"] = None if decision.condition is None else decision.condition.reason
        shown_node["devices"] = [
            {
                "device": device.device,
                "state": device.state.value,
                "lastKnownState": device.known.value,
                "celsius": None
                if device.celsius is None or device.state is Heat.UNKNOWN
                else round(device.celsius, 1),
            }
            for device in decision.devices
        ]
    return shown_node


def _json(body: dict[str, object], status: int = HTTPStatus.OK) -> Response:
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    return Response(
        body=f"{text}\n".encode(), status=status, content_type="application/json; charset=utf-8"
    )

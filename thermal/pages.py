"""What the guard answers over HTTP besides probes: metrics, and its judgement as JSON."""

import json
from collections.abc import Callable
from http import HTTPStatus

from daemon.http import Handler, Request, Response
from npu.heat import Heat
from thermal.fleet import NodeStatus
from thermal.judging import Judgement
from thermal.metrics import Metrics

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
        nodes = [_node(status) for _, status in sorted(current.statuses.items())]
        return _json({"leader": True, "nodes": nodes})

    return answer


def _node(status: NodeStatus) -> dict[str, object]:
    decision = status.decision
    shown_node: dict[str, object] = {
        "node": status.node,
        "state": None if decision is None else decision.state.value,
        "since": status.since or None,
        "sampleAgeSeconds": round(status.sample_age_seconds, 1),
        "problem": status.problem,
        "thresholdsCelsius": status.limits.named(),
        "devices": [],
    }
    if decision is not None:
        shown_node["actions"] = [type(action).__name__ for action in decision.actions]
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

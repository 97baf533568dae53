"""The two probes every service answers, from memory.

``/healthz`` says only whether the loops tick: a restart cures a stuck process and nothing else.
``/readyz`` says whether the service does its work now, with every reason it does not.
"""

from collections.abc import Callable, Sequence
from http import HTTPStatus

from daemon.http import Handler, Request, Response, text


def probe(problems: Callable[[], Sequence[str]]) -> Handler:
    """Return a handler that answers 200 ``ok``, or 503 and one line per problem."""

    def answer(_request: Request) -> Response:
        found = problems()
        if found:
            return text("\n".join(found), HTTPStatus.SERVICE_UNAVAILABLE)
        return text("ok")

    return answer


def liveness(stalled: Callable[[], Sequence[str]]) -> Handler:
    """Return the ``/healthz`` handler over :meth:`daemon.supervisor.Supervisor.stalled`."""
    return probe(lambda: [f"loop {name} does not tick" for name in stalled()])

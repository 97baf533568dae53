"""Command line of the inference service, and the service built from its parts."""

import argparse
import base64
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path

from daemon import logs
from daemon.http import HttpServer, Request, Response, text
from daemon.logs import fields
from daemon.options import EXIT_CONFIGURATION, Options, absolute_path, positive_seconds
from daemon.probes import liveness, probe
from daemon.supervisor import Loop, Supervisor
from daemon.version import REVISION, VERSION
from inference.backends import Backend, BackendError, Description, InputError, Simulated
from inference.dispatcher import BusyError, Dispatcher, LateError, Observer
from inference.heat import LOOK_SECONDS, Heat
from inference.throttle import Limits
from npu.host import Host
from npu.names import ENV_CORE_HINT

log = logging.getLogger(__name__)

_CHOICES = ("auto", "librknnrt", "toolkit-lite2", "simulated")
#: More than any board has; a hint beyond it is a mistake.
_MAX_CORE = 31
_LAST_ANSWERS_SECONDS = 0.2


def options() -> Options:
    """Return the options of ``python -m inference``."""
    made = Options(
        "inference", prefix="NPU_INFERENCE", description="Serves a model on an NPU over HTTP."
    )
    made.add("service-name", "inference", "name of the service in its metrics")
    made.add("model", "", "file of the model; its name without the ending is a label")
    made.add("backend", "auto", f"{', '.join(_CHOICES)}; auto: librknnrt", kind=_backend)
    made.add("library", "", "librknnrt.so, where it is in no usual place")
    made.add(
        "workers", 0, "requests at once; 0: one per core that the platform advises", kind=_natural
    )
    made.add("queue", 64, "requests that may wait; more are refused", kind=_natural)
    made.add("timeout", 10.0, "seconds that a request may take in all", kind=positive_seconds)
    made.add("drain", 3.0, "seconds of going on after SIGTERM, unready", kind=positive_seconds)
    made.add("simulated-seconds", 0.035, "mean time of a simulated run", kind=positive_seconds)
    made.add("throttle-celsius", 76.0, "half speed from this temperature on")
    made.add("release-celsius", 70.0, "full speed below this one")
    made.add("root", Path("/"), "where the board's /sys is", kind=absolute_path)
    made.add_common()
    return made


def _backend(name: str) -> str:
    if name not in _CHOICES:
        raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(_CHOICES)}")
    return name


def _natural(digits: str) -> int:
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len("10000")):
        raise argparse.ArgumentTypeError(f"{digits!r} is not a number from 0 to 99999")
    return int(digits)


def cores(hint: str, workers: int) -> tuple[int | None, ...]:
    """Return a core for each worker: those of the hint in turn, None (any) without a hint."""
    words = [word.strip() for word in hint.split(",")]
    advised: list[int | None] = [
        int(word) for word in words if word.isascii() and word.isdigit() and int(word) <= _MAX_CORE
    ]
    known = advised or [None]
    return tuple(known[index % len(known)] for index in range(workers or len(known)))


def choose(given: argparse.Namespace) -> Backend:
    """Return the backend asked for; raises BackendError, and never falls back to another."""
    if given.backend == "simulated":
        return Simulated(given.simulated_seconds)
    if not given.model:
        raise BackendError("no model: give --model FILE, or --backend simulated to only pretend")
    if given.backend == "toolkit-lite2":
        from inference.toolkit_lite import ToolkitLite

        return ToolkitLite(Path(given.model))
    from inference import librknnrt

    return librknnrt.Librknnrt(librknnrt.find(given.library), Path(given.model))


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve; return the exit code (0 stopped, 1 failed, 2 bad configuration)."""
    made = options()
    given = made.parse(arguments)
    logs.configure(given.log_level, given.log_format)
    for name in made.unknown_variables():
        log.warning("environment variable is no option", extra=fields(name=name))
    if given.release_celsius >= given.throttle_celsius:
        sys.stderr.write("inference: --release-celsius must be below --throttle-celsius\n")
        return EXIT_CONFIGURATION
    try:
        backend = choose(given)
        description = backend.describe()
    except BackendError as error:
        sys.stderr.write(f"inference: {error}\n")
        return EXIT_CONFIGURATION
    log.info("starting", extra=fields(version=VERSION, revision=REVISION))
    return build(given, backend, description, os.environ).run()


def build(
    given: argparse.Namespace,
    backend: Backend,
    description: Description,
    environment: Mapping[str, str],
) -> Supervisor:
    """Return the supervisor with loops and services, nothing started yet."""
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    from inference.metrics import Identity, Metrics

    hinted = cores(environment.get(ENV_CORE_HINT, ""), given.workers)
    mask = "_".join(str(core) for core in sorted({core for core in hinted if core is not None}))
    model = Path(given.model).stem or "none"
    identity = Identity(service_name=given.service_name, model=model, core_mask=mask or "auto")
    metrics = Metrics(identity)
    dispatcher = Dispatcher(
        backend,
        hinted,
        capacity=given.queue,
        observer=Observer(waited=metrics.waited, ran=metrics.ran),
    )
    limits = Limits(enter_celsius=given.throttle_celsius, leave_celsius=given.release_celsius)
    heat = Heat(Host(given.root), limits, lambda active: dispatcher.throttle(active=active))
    lifetime = _Lifetime(dispatcher, metrics.loaded, drain_seconds=given.drain)
    metrics.watch(dispatcher)
    metrics.temperature(lambda: heat.celsius)
    metrics.describe(description)
    log.info(
        "model",
        extra=fields(
            model=model, runtime=description.runtime, version=description.version, cores=mask,
            workers=len(hinted), operators=len(description.operators),
        ),
    )  # fmt: skip

    def infer(request: Request) -> Response:
        response = answer(dispatcher, request, model=model, within_seconds=given.timeout)
        metrics.answered(response.status)
        return response

    def exposition(_request: Request) -> Response:
        return Response(body=generate_latest(metrics.registry), content_type=CONTENT_TYPE_LATEST)

    supervisor = Supervisor()
    supervisor.add_service(
        HttpServer(
            given.bind,
            {
                "/metrics": exposition,
                "/healthz": liveness(supervisor.stalled),
                "/readyz": probe(lifetime.problems),
            },
            posts={"/v1/infer": infer},
        )
    )
    supervisor.add_service(lifetime)
    supervisor.add_loop(Loop(name="heat", period_seconds=LOOK_SECONDS, step=heat.look))
    return supervisor


class _Lifetime:
    """Loads the model before the service is ready, and ends it in an order that loses nothing."""

    def __init__(
        self, dispatcher: Dispatcher, loaded: Callable[[float], None], *, drain_seconds: float
    ) -> None:
        self._dispatcher = dispatcher
        self._loaded = loaded
        self._drain_seconds = drain_seconds
        self._problem: str | None = "the model is not loaded yet"

    def problems(self) -> list[str]:
        """Return why the service takes no requests."""
        return [] if self._problem is None else [self._problem]

    def start(self) -> None:
        """Load the model."""
        began = time.monotonic()
        self._dispatcher.start()
        self._loaded(time.monotonic() - began)
        self._problem = None

    def stop(self) -> None:
        """Go on until nobody sends any more, then finish what was accepted."""
        self._problem = "the service ends"
        # Whoever balances the load goes on for a moment: it learns of the end as we do.
        time.sleep(self._drain_seconds)
        self._dispatcher.stop()
        # The last answers are on their way through the HTTP server's threads.
        time.sleep(_LAST_ANSWERS_SECONDS)


def answer(
    dispatcher: Dispatcher, request: Request, *, model: str, within_seconds: float
) -> Response:
    """Return the answer to a request for an inference."""
    try:
        outputs = dispatcher.infer(request.body, within_seconds=within_seconds)
    except BusyError as error:
        return Response(
            body=f"{error}\n".encode(),
            status=HTTPStatus.SERVICE_UNAVAILABLE,
            headers={"Retry-After": str(error.retry_seconds)},
        )
    except InputError as error:
        return text(str(error), HTTPStatus.BAD_REQUEST)
    except LateError as error:
        return text(str(error), HTTPStatus.GATEWAY_TIMEOUT)
    except BackendError as error:
        return text(str(error), HTTPStatus.INTERNAL_SERVER_ERROR)
    content = {
        "model": model,
        "outputs": [
            {
                "name": one.name,
                "shape": one.shape,
                "datatype": "FP32",
                "data": base64.b64encode(one.data).decode(),
            }
            for one in outputs
        ],
    }
    return Response(body=json.dumps(content).encode(), content_type="application/json")

"""Who holds which device, as the kubelet's PodResources API last told."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from daemon.logs import fields
from kubelet.podresources import PodDevices, PodResourcesError
from plugin.claims import Known

log = logging.getLogger(__name__)

#: The kubelet limits calls of all clients together and collects garbage in each of them.
PERIOD_SECONDS = 10.0
TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A container that holds a device."""

    namespace: str
    pod: str
    container: str


class Holders:
    """Remembers the last answer; without the API nothing but this knowledge is missing.

    ``ask`` is ``PodResourcesClient.list`` with a time limit; ``ours`` tells which resource names
    matter. ``on_first_answer`` is called once.
    """

    def __init__(
        self,
        ask: Callable[[float], tuple[PodDevices, ...]],
        *,
        ours: Callable[[str], bool],
        on_first_answer: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._ours = ours
        self._on_first_answer = on_first_answer
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._held: Mapping[str, Mapping[str, Holder]] = {}
        self._known = Known()
        self._answered_at: float | None = None
        self._problem: str | None = "the kubelet was not asked yet"
        self.errors: dict[str, int] = {}

    def step(self) -> None:
        """Ask once; a failure keeps what is known."""
        asked_at = self._monotonic()
        try:
            answer = self._ask(TIMEOUT_SECONDS)
        except PodResourcesError as error:
            with self._lock:
                first = self.errors.get(error.reason, 0) == 0 or self._problem is None
                self.errors[error.reason] = self.errors.get(error.reason, 0) + 1
                self._problem = str(error)
            if first:
                log.warning(
                    "PodResources does not answer; holders of devices are not known",
                    extra=fields(reason=error.reason, detail=error),
                )
            return
        held: dict[str, dict[str, Holder]] = {}
        for entry in answer:
            if self._ours(entry.resource):
                holder = Holder(namespace=entry.namespace, pod=entry.pod, container=entry.container)
                for identifier in entry.device_ids:
                    held.setdefault(entry.resource, {})[identifier] = holder
        with self._lock:
            first = self._answered_at is None
            if self._problem is not None and not first:
                log.info("PodResources answers again")
            self._held, self._problem = held, None
            self._known = Known(held=held, asked_at=asked_at)
            self._answered_at = self._monotonic()
        if first:
            self._on_first_answer()

    def held(self) -> Mapping[str, Mapping[str, Holder]]:
        """Return holders by resource and identifier, as last known."""
        with self._lock:
            return self._held

    def known(self) -> Known:
        """Return the identifiers held, with the time of the question."""
        with self._lock:
            return self._known

    def problem(self) -> str | None:
        """Return why the last question failed, None where it did not."""
        with self._lock:
            return self._problem

    def age_seconds(self) -> float | None:
        """Return how old the knowledge is, None where there never was any."""
        with self._lock:
            return None if self._answered_at is None else self._monotonic() - self._answered_at

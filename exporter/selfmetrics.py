"""Samples about the exporter itself."""

import platform
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Self

from prometheus_client import ProcessCollector

from daemon.supervisor import Loop
from daemon.version import REVISION, VERSION
from exporter import catalogue
from exporter.catalogue import CATALOGUE, Sample
from exporter.failures import Failures

#: Counted from 0, so that the first one shows in ``increase()``.
_USUAL_ANSWERS = (HTTPStatus.OK, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.SERVICE_UNAVAILABLE)


class SelfMetrics:
    """Counts requests and scrapes; safe to use from threads."""

    def __init__(self, failures: Failures, loops: Sequence[Loop]) -> None:
        self._failures = failures
        self._loops = loops
        self._lock = threading.Lock()
        self._answers = Counter({int(status): 0 for status in _USUAL_ANSWERS})
        self._in_flight = 0
        self._process = ProcessCollector(registry=None)

    def answered(self, status: int) -> None:
        """Count an HTTP answer."""
        with self._lock:
            self._answers[status] += 1

    def __enter__(self) -> Self:
        with self._lock:
            self._in_flight += 1
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._in_flight -= 1

    def samples(self) -> Iterator[Sample]:
        """Yield the samples."""
        for collector, count in self._failures.counts().items():
            yield catalogue.READ_ERRORS.sample(count, collector=collector)
        yield catalogue.BUILD_INFO.sample(
            1, version=VERSION, revision=REVISION, python_version=platform.python_version()
        )
        with self._lock:
            answers, in_flight = dict(self._answers), self._in_flight
        yield catalogue.SCRAPES_IN_FLIGHT.sample(in_flight)
        for code, count in sorted(answers.items()):
            yield catalogue.HTTP_REQUESTS.sample(count, code=str(code))
        for loop in self._loops:
            yield catalogue.LOOP_ERRORS.sample(loop.errors, loop=loop.name)
        for family in self._process.collect():
            for sample in family.samples:
                if sample.name in CATALOGUE:
                    yield CATALOGUE[sample.name].sample(sample.value)

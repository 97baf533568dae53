"""Samples in the text formats of Prometheus and OpenMetrics."""

from collections.abc import Iterable, Iterator

import prometheus_client
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from exporter.catalogue import CATALOGUE, Metric, Sample

_SUFFIXES = {"counter": "_total", "info": "_info", "gauge": ""}


class Families(Collector):
    """Samples grouped into metric families, in the order of the catalogue.

    A family without samples is left out. A series occurs once: the first sample of it counts.
    """

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._values: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
        for sample in samples:
            self._values.setdefault(sample.metric.name, {}).setdefault(sample.labels, sample.value)

    def collect(self) -> Iterator[prometheus_client.Metric]:
        """Yield the families."""
        for name, metric in CATALOGUE.items():
            if name in self._values:
                yield _family(metric, self._values[name])


def _family(
    metric: Metric, values: dict[tuple[tuple[str, str], ...], float]
) -> prometheus_client.Metric:
    family = prometheus_client.Metric(
        metric.name.removesuffix(_SUFFIXES[metric.kind]), metric.help, metric.kind
    )
    for labels, value in values.items():
        family.add_sample(metric.name, dict(labels), float(value))
    return family


def render(samples: Iterable[Sample], accept: str = "") -> tuple[bytes, str]:
    """Return exposition and content type in the best format that ``accept`` (a header) allows."""
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):
        # The library does not expect every version that a client can write.
        encode, content_type = choose_encoder("")
    return encode(Families(samples)), content_type

"""Reads a fleet's temperatures from Prometheus instead of from its exporters.

One instant query per turn asks for the last minutes of the wanted series. Raw samples come with the
time at which they were scraped, so an old one is known as old; a plain instant query would show a
value of five minutes ago as of now.

A node is told by the label ``node``, which Prometheus sets from the exporter Pod: with
``honor_labels: false`` a node that serves that label itself gets ``exported_node``. Where a
Prometheus honours such labels all the same, ``instance`` gives it away: a sample that was scraped
from the exporter of one node and names another is left out.
"""

import base64
import http.client
import json
import math
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from thermal.config import Prometheus
from thermal.exposition import Page, Sample
from thermal.readings import WANTED, node_sample
from thermal.source import Failure, Result, Target

ANSWER_LIMIT_BYTES = 64 << 20
_MILLISECONDS = 1000.0
#: Samples of one scrape have one time, but for a Prometheus that aligns them.
_SAME_PAGE_SECONDS = 0.5


class PrometheusSource:
    """A Source over the query API. Used by one thread."""

    def __init__(self, settings: Prometheus) -> None:
        self._settings = settings
        self._addresses: dict[str, str] = {}

    def read(self, targets: Sequence[Target]) -> Mapping[str, Result]:
        """Return what Prometheus knows of the targets; a failed query fails all of them."""
        if not targets:
            return {}
        for target in targets:
            # Last, because the newest owner of an address counts.
            self._addresses.pop(target.node, None)
            self._addresses[target.node] = target.address
        try:
            pages = self._pages({address: node for node, address in self._addresses.items()})
        except TimeoutError:
            failure = Failure(reason="timeout", detail="Prometheus did not answer in time")
            return dict.fromkeys((target.node for target in targets), failure)
        except (OSError, http.client.HTTPException, ValueError) as error:
            failure = Failure(reason="http", detail=f"Prometheus: {error}")
            return dict.fromkeys((target.node for target in targets), failure)
        stale = Failure(
            reason="stale",
            detail=f"Prometheus has no sample of the last {self._settings.max_age_seconds:g} s",
        )
        return {
            target.node: node_sample(pages[target.node]) if target.node in pages else stale
            for target in targets
        }

    def _pages(self, owners: Mapping[str, str]) -> dict[str, Page]:
        settings = self._settings
        names = "|".join(sorted(WANTED))
        matchers = f",{settings.matchers}" if settings.matchers else ""
        window = f"{round(settings.max_age_seconds * _MILLISECONDS)}ms"
        query = f'{{__name__=~"{names}",node!=""{matchers}}}[{window}]'
        return pages_of(self._ask({"query": query}), owners)

    def _ask(self, parameters: Mapping[str, str]) -> bytes:
        settings = self._settings
        request = urllib.request.Request(  # noqa: S310 (the scheme was checked)
            f"{settings.url.rstrip('/')}/api/v1/query",
            data=urllib.parse.urlencode(parameters).encode(),
            headers={"User-Agent": "npu-platform-guard", **self._authorization()},
        )
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=self._context()),
            _NoRedirects(),
        )
        with opener.open(request, timeout=settings.timeout_seconds) as answer:
            body: bytes = answer.read(ANSWER_LIMIT_BYTES + 1)
        if len(body) > ANSWER_LIMIT_BYTES:
            raise ValueError(f"answer exceeds {ANSWER_LIMIT_BYTES} bytes")
        return body

    def _authorization(self) -> dict[str, str]:
        settings = self._settings
        if settings.token_file:
            return {"Authorization": f"Bearer {_secret(settings.token_file)}"}
        if settings.username_file:
            pair = f"{_secret(settings.username_file)}:{_secret(settings.password_file)}"
            return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        return {}

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._settings.ca_file or None)
        if self._settings.insecure_skip_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the credentials elsewhere."""

    def redirect_request(self, *_arguments: object) -> None:
        """Follow none: the answer is an error with its code."""


def pages_of(answer: bytes, owners: Mapping[str, str]) -> dict[str, Page]:
    """Return the newest samples of a range vector by node; raises ValueError.

    A node without any sample is missing. What is no sample is left out, and what names another node
    than the owner of the address it came from; both count as malformed lines of that owner.
    """
    try:
        data = msgspec.json.decode(answer)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"answer is no JSON: {error}") from error
    content = data.get("data") if isinstance(data, dict) else None
    result = content.get("result") if isinstance(content, dict) else None
    if not isinstance(result, list) or data.get("status") != "success":
        raise ValueError(f"query failed: {json.dumps(data)[:200]}")
    found: dict[str, list[tuple[float, Sample]]] = {}
    malformed: Counter[str] = Counter()
    for series in result:
        try:
            at, sample = _newest(msgspec.convert(series, _Series))
        except (msgspec.ValidationError, ValueError, IndexError):
            continue
        node = sample.labels.get("node", "")
        owner = owners.get(_host(sample.labels.get("instance", "")), node)
        if owner == node and math.isfinite(sample.value):
            found.setdefault(node, []).append((at, sample))
        else:
            malformed[owner] += 1
    return {node: _page(samples, malformed[node]) for node, samples in found.items() if node}


class _Series(msgspec.Struct, frozen=True, kw_only=True):
    metric: dict[str, str]
    values: list[tuple[float, str]]


def _newest(series: _Series) -> tuple[float, Sample]:
    at, text = series.values[-1]
    name = series.metric.get("__name__", "")
    return at, Sample(name=name, labels=series.metric, value=float(text))


def _page(samples: Sequence[tuple[float, Sample]], malformed: int) -> Page:
    """Return what the newest page said: a series that is not in it is gone, not old."""
    newest = max(at for at, _ in samples)
    return Page(
        samples=tuple(sample for at, sample in samples if newest - at < _SAME_PAGE_SECONDS),
        malformed=malformed,
    )


def _host(instance: str) -> str:
    """Return the address in ``address:port``, as far as a label ``instance`` is one."""
    return instance.rpartition(":")[0].strip("[]")


def _secret(path: str) -> str:
    return Path(path).read_text(encoding="utf-8").strip()

"""Text formats: valid for any label value, one line per series, no invented timestamps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter import catalogue
from exporter.exposition import render

OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"


@given(st.text(min_size=1), st.text(min_size=1))
def test_hostile_label_values_stay_label_values(namespace: str, pod: str) -> None:
    """Quotes, backslashes and newlines cannot forge a series in either format."""
    sample = catalogue.POD_BUSY.sample(1.5, namespace=namespace, pod=pod, attribution="exclusive")
    for accept, parse in (("", parse_text), (OPENMETRICS, parse_openmetrics)):
        body, _ = render([sample], accept)
        (family,) = parse(body.decode())
        (parsed,) = family.samples
        assert parsed.labels == {"namespace": namespace, "pod": pod, "attribution": "exclusive"}
        assert parsed.value == 1.5


def test_format_is_negotiated() -> None:
    """OpenMetrics for those who ask for it, plain text for everybody else; never `_created`."""
    samples = [catalogue.CORE_BUSY.sample(1, device="npu0", core="0")]
    body, content_type = render(samples, OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
    assert b"_created" not in body
    body, content_type = render(samples)
    assert content_type.startswith("text/plain")
    assert b"# TYPE npu_core_busy_seconds_total counter\n" in body


@pytest.mark.parametrize(
    "accept", ["text/plain;version=zz", "application/openmetrics-text;version=1.0.0;escaping=x"]
)
def test_strange_accept_header_gets_an_answer(accept: str) -> None:
    """What a client asks for never keeps it from being answered."""
    body, _ = render([catalogue.POWER_ON.sample(1, device="npu0")], accept)
    assert b'npu_power_on{device="npu0"} 1.0\n' in body


def test_a_number_without_a_float_fails_where_it_is_read() -> None:
    """Found in the exposition it would take all other samples with it."""
    with pytest.raises(OverflowError):
        catalogue.POWER_ON.sample(10**400, device="npu0")


def test_a_series_occurs_once() -> None:
    """Two samples of one series would make Prometheus refuse the whole scrape."""
    twice = [catalogue.POWER_ON.sample(value, device="npu0") for value in (1, 0)]
    body, _ = render(twice)
    assert body.decode().count("npu_power_on{") == 1


def test_nothing_is_a_valid_exposition() -> None:
    """A filter that matches nothing gives an empty answer, not an error."""
    assert render([])[0] == b""
    assert render([], OPENMETRICS)[0] == b"# EOF\n"

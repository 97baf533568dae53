"""Prometheus sees the boards' true numbers."""

import time
from collections.abc import Iterator

import pytest

from ci.demo.story import NAMESPACE
from ci.kube import until
from ci.prometheus import Prometheus
from tests.cluster.platform.installed import BUSY, SAMPLED, Platform, npu_pod

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

#: Integration time and tolerance of the load comparison.
SECONDS = 300
POINTS = 0.02


@pytest.fixture(scope="module")
def prometheus(platform: Platform) -> Iterator[Prometheus]:
    """A Prometheus that scrapes all services."""
    server = Prometheus.beside(platform.cluster)
    server.start(platform.kube.items("pods", "-n", NAMESPACE), scrape_seconds=2.0)
    yield server
    server.stop()


def test_values_equal_the_boards(boards: Platform, prometheus: Prometheus) -> None:
    """With frozen boards every node shows its own load, temperature and clock."""
    for celsius, node in zip((41.0, 55.0), boards.boards, strict=True):
        boards.hold(node, celsius, (0.63, 0.0, 1.0))

    for celsius, node in zip((41.0, 55.0), boards.boards, strict=True):
        # The sensor has steps of 0.923 °C.
        _await_value(
            prometheus, f'npu_temperature_celsius{{node="{node}"}}', pytest.approx(celsius, abs=1.0)
        )
        for core, ratio in enumerate((0.63, 0.0, 1.0)):
            series = f'{{node="{node}",core="{core}"}}[10s]'
            query = f"rate({BUSY}{series}) / rate({SAMPLED}{series})"
            _await_value(prometheus, query, pytest.approx(ratio))
        _await_value(prometheus, f'npu_frequency_hertz{{node="{node}"}}', 1e9)


def _await_value(prometheus: Prometheus, query: str, expected: object) -> None:
    until(
        lambda: prometheus.value(query),
        lambda seen: seen == expected,
        seconds=30,
        what=f"{query} = {expected}",
    )


def test_all_services_are_scraped(platform: Platform, prometheus: Prometheus) -> None:
    """Plugin, exporter and guard answer on every node they run on."""
    jobs = until(
        lambda: {target["labels"]["job"] for target in prometheus.healthy_targets()},
        lambda seen: len(seen) >= 4,
        seconds=30,
        what="healthy targets of four jobs",
    )

    assert jobs >= {f"npu-platform-{name}" for name in ("plugin", "exporter", "guard")}


def test_utilisation_equals_the_windows_of_the_board(
    boards: Platform, prometheus: Prometheus
) -> None:
    """Over five minutes sum(rate(busy)) / sum(rate(sampled)) is the mean of the board's windows."""
    node = boards.boards[0]
    with boards.pod(npu_pod("npu-load", node)):
        # The rate needs the whole range inside the time of load.
        time.sleep(SECONDS + 10)
        ratio = prometheus.value(
            f'sum(rate({BUSY}{{node="{node}"}}[{SECONDS}s]))'
            f' / sum(rate({SAMPLED}{{node="{node}"}}[{SECONDS}s]))'
        )
        truth = prometheus.value(
            f'sum(rate(npu_simulator_busy_seconds_total{{node="{node}"}}[{SECONDS}s]))'
            f' / (sum(rate(npu_simulator_windows_total{{node="{node}"}}[{SECONDS}s])) * 3)'
        )

    assert ratio is not None
    assert truth is not None
    assert truth > 0.3
    assert abs(ratio - truth) <= POINTS, (ratio, truth)


def test_holder_is_named(boards: Platform) -> None:
    """The Pod that holds the device is a label of the allocation, and is credited its load."""
    node = boards.boards[1]
    with boards.pod(npu_pod("npu-named", node)):
        until(
            lambda: boards.value(node, "npu_device_allocation_info", pod="npu-named"),
            lambda value: value == 1.0,
            seconds=30,
            what="allocation of npu-named",
        )
        until(
            lambda: boards.value(node, "npu_pod_core_busy_seconds_total", pod="npu-named"),
            lambda value: value is not None and value > 0.5,
            seconds=30,
            what="busy seconds of npu-named",
        )


def test_bare_node_has_no_npu_series(platform: Platform) -> None:
    """No NPU means no npu_up, not npu_up 0."""
    metrics = platform.metrics(platform.bare)

    assert "npu_up" not in metrics
    assert "npu_info" not in metrics
    assert "npu_exporter_build_info" in metrics or "npu_exporter_build_info_info" in metrics

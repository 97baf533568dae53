"""Clusters for the tests below, and their lanes.

Without pytest-xdist there is one cluster at a time: an own one, or the one named by
NPU_TEST_CLUSTER, which is left as it is. With it each worker has its own; see ``lanes``.
"""

import os
from collections.abc import Callable, Iterator

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from ci.cluster import Cluster
from ci.cluster.instance import registry
from ci.kube import Kube
from ci.patience import patient
from tests.cluster import lanes
from tests.cluster.lanes import DEFAULT, Flavour

# The clock runs for the test alone: its cluster may have to be built first.
_SECONDS = 300
_OWN = "test"
_MEASURED = "measured"

Measure = Callable[[str], None]


class LaneScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each worker of pytest-xdist one lane after the other, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        file = self.config.rootpath.joinpath(nodeid.partition("::")[0])
        return lanes.lane_of(file).name if file.is_relative_to(lanes.HERE) else str(file)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give tests of a lane with a flavour a cluster of that flavour."""
    if "cluster" not in metafunc.fixturenames:
        return
    flavour = lanes.lane_of(metafunc.definition.path).flavour
    if flavour is not DEFAULT:
        metafunc.parametrize(
            "cluster", [flavour], ids=[flavour.name], indirect=True, scope="session"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LaneScheduling:
    """Let workers take whole lanes, whatever ``--dist`` says."""
    return LaneScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests here as ones that need a cluster, and sort them into lanes."""
    if mistakes := list(lanes.mistakes()):
        raise pytest.UsageError(f"{lanes.__file__}: {', '.join(mistakes)}")
    mine = [item for item in items if item.path.is_relative_to(lanes.HERE)]
    for item in mine:
        item.add_marker(pytest.mark.cluster)
        own = item.get_closest_marker("timeout")
        seconds = patient(own.args[0] if own else _SECONDS)
        item.add_marker(pytest.mark.timeout(seconds, func_only=True), append=False)
    others = [item for item in items if not item.path.is_relative_to(lanes.HERE)]
    items[:] = others + sorted(mine, key=lambda item: lanes.position(item.path))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Take down what interrupted workers left."""
    if config.getoption("numprocesses", None) and not os.environ.get("NPU_TEST_CLUSTER"):
        for name in registry().names():
            if name.startswith(f"{_OWN}-gw"):
                Cluster(name).down()


def cluster_name(flavour: Flavour, *, given: str | None, worker: str | None) -> str:
    """Return the name of the cluster of this process (``worker`` of pytest-xdist) and flavour."""
    return "-".join(part for part in (given or _OWN, worker, flavour.name) if part)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Give a cluster of two Ready nodes; one that was asked for by name is left as it is."""
    flavour: Flavour = getattr(request, "param", DEFAULT)
    given = os.environ.get("NPU_TEST_CLUSTER")
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    one = Cluster(cluster_name(flavour, given=given, worker=worker))
    one.up(version=flavour.kubernetes, containerd=flavour.containerd)
    yield one
    if not given:
        one.down()


@pytest.fixture(scope="session")
def kube(cluster: Cluster) -> Kube:
    """Give kubectl and helm on that cluster."""
    return Kube(kubeconfig=cluster.kubeconfig)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was measured: numbers for people, no test depends on them."""
    lines = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == _MEASURED
    ]
    if lines:
        terminalreporter.section(_MEASURED)
        for line in lines:
            terminalreporter.write_line(str(line))


@pytest.fixture
def measure(request: pytest.FixtureRequest) -> Measure:
    """Takes a line for the summary at the end, from whatever process the test runs in."""

    def note(line: str) -> None:
        request.node.user_properties.append((_MEASURED, line))

    return note

"""The thermal guard on a thousand nodes of a real API server, in a minute.

The same as ``make bench-guard``, which has five thousand and takes longer: real etcd, API server,
Nodes and exporter Pods as plain objects, one process as all exporters, a twentieth of them dead.
"""

from collections.abc import Callable

import pytest

from ci.patience import patient
from tests.bench import guard

pytestmark = pytest.mark.cluster

NODES = 1000
HEATED = 20


@pytest.mark.timeout(300)
def test_a_thousand_nodes(worker_id: str, measure: Callable[[str], None]) -> None:
    """Every hot node is closed in time; CPU, memory and writes stay within their gates."""
    report = guard.run(NODES, HEATED, name=f"scale-{worker_id}", brief=True)
    measure(guard.table(report))
    (phase,) = report["phases"]
    assert phase["tainted"] == HEATED
    assert phase["late_p99"] <= patient(guard.GATE_LATE_SECONDS)
    assert phase["cores"] <= guard.GATE_CORES
    assert phase["rss_mebibytes"] <= guard.GATE_RSS_MEBIBYTES
    assert phase["writes_per_second"] <= guard.GATE_WRITES

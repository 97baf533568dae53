"""The thermal guard on a thousand nodes of a real API server, in both modes.

The same as ``make bench-guard``, which has five thousand and takes longer: real etcd, API server,
Nodes and exporter Pods as plain objects, one process as all exporters, a twentieth of them dead.
"""

from collections.abc import Callable
from typing import Any

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
    _assert_gates(phase, HEATED)
    assert phase["late_p99"] <= patient(guard.GATE_LATE_SECONDS)


@pytest.mark.timeout(600)
def test_a_thousand_nodes_with_claims(worker_id: str, measure: Callable[[str], None]) -> None:
    """The same with slices to publish and rules to write, and a tenth of the fleet hot at once."""
    report = guard.run(NODES, HEATED, name=f"scale-{worker_id}", brief=True, claims=True)
    measure(guard.table(report))
    steady, wave = report["phases"]
    _assert_gates(steady, HEATED)
    assert steady["late_p99"] <= patient(guard.GATE_LATE_SECONDS)
    _assert_gates(wave, int(NODES * guard.BRIEF_WAVE_RATIO))


def _assert_gates(phase: dict[str, Any], heated: int) -> None:
    assert phase["tainted"] == heated
    assert phase["cores"] <= guard.GATE_CORES
    assert phase["rss_mebibytes"] <= guard.GATE_RSS_MEBIBYTES
    assert phase["writes_per_second"] <= guard.GATE_WRITES

"""The demonstration reports what it saw and uses the documented Pod."""

import io
from pathlib import Path

import pytest

from ci.command import CommandError
from ci.demo import story
from ci.demo.report import Report
from ci.demo.story import Story, patient_probes, sample_pod, total
from ci.kube import Json, Kube
from ci.patience import VARIABLE


def test_table_shows_outcome_seconds_and_finding() -> None:
    """Each step is one row, failures included."""
    times = iter([0.0, 1.5, 2.0, 5.0])
    report = Report(out=io.StringIO(), clock=lambda: next(times))
    with report.step("install") as step:
        step.found = "4 Pods"
    with pytest.raises(RuntimeError), report.step("heat"):
        raise RuntimeError

    rows = report.table().splitlines()

    assert rows[1].split() == ["ok", "1.5", "install", "4", "Pods"]
    assert rows[2].split() == ["FAILED", "3.0", "heat"]
    assert rows[3].split() == ["4.5", "in", "all"]


def test_total_per_metric() -> None:
    """Labels, comments and blanks in label values do not disturb."""
    text = (
        "# HELP npu_x something\n"
        'npu_x{core="0"} 0.25\nnpu_x{core="1",pod="a } b"} 0.75\nnpu_y 3e2\n'
    )

    assert total(text) == {"npu_x": 1.0, "npu_y": 300.0}


def test_next_pod_prefers_a_node() -> None:
    """The preference is soft: only the taint keeps the Pod away."""
    pod = sample_pod(name="npu-next", prefers="node1")

    affinity = pod["spec"]["affinity"]["nodeAffinity"]
    assert list(affinity) == ["preferredDuringSchedulingIgnoredDuringExecution"]
    assert sample_pod()["metadata"]["name"] == "npu-sample"
    assert "affinity" not in sample_pod()["spec"]


def test_probes_are_the_charts_own_on_ordinary_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a visitor sees is what the chart does by default."""
    monkeypatch.delenv(VARIABLE, raising=False)
    assert patient_probes() == ()


def test_slow_starters_are_not_ended_on_slow_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every service may take longer by the factor."""
    monkeypatch.setenv(VARIABLE, "10")
    probes = patient_probes()
    assert "exporter.probes.startup.failureThreshold=600" in probes
    assert "guard.probes.liveness.failureThreshold=30" in probes
    assert len(probes) == 8


class _FakeKube(Kube):
    """A cluster whose exporter answers with given texts, one after the other."""

    texts: list[str] = []  # noqa: RUF012 (of the class: the record itself is frozen)

    def pod_of(self, namespace: str, selector: str, node: str | None = None) -> Json:
        """Return some Pod."""
        return {}

    def pod_http(self, pod: Json, path: str, *, port: int = 8080) -> str:
        """Return the next text."""
        return self.texts.pop(0)


def test_load_is_zero_until_the_exporter_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exporter that has not found the board yet has no counters: no load, no crash."""
    monkeypatch.setattr(story, "_LOAD_SECONDS", 0.0)
    counted = (
        'npu_core_busy_seconds_total{core="0"} 3\nnpu_core_sampled_seconds_total{core="0"} 4\n'
    )
    monkeypatch.setattr(_FakeKube, "texts", ["", "", "", counted])
    told = Story(kube=_FakeKube(kubeconfig=Path("/none")), report=Report(out=io.StringIO()))

    assert told._load("node1") == 0.0
    assert told._load("node1") == 0.75


class _Installed(Kube):
    """A cluster with DaemonSets of these releases and components."""

    found: tuple[tuple[str, str], ...] = ()

    def items(self, *arguments: str) -> list[Json]:
        """Answer for all namespaces."""
        assert arguments == ("daemonsets", "-A", "-l", "app.kubernetes.io/part-of=npu-platform")
        return [
            {
                "metadata": {
                    "namespace": f"{release}-system",
                    "labels": {
                        "app.kubernetes.io/instance": release,
                        "app.kubernetes.io/component": component,
                    },
                }
            }
            for release, component in self.found
        ]


@pytest.mark.parametrize("found", [(), (("npu", "plugin"), ("npu", "simulator"))])
def test_a_cluster_without_real_boards_may_be_used(
    found: tuple[tuple[str, str], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is there, or a demonstration."""
    monkeypatch.setattr(_Installed, "found", found)
    Story(kube=_Installed(kubeconfig=Path("/none")), report=Report()).spare_real_boards()


@pytest.mark.parametrize(
    "found",
    [
        (("npu", "plugin"), ("npu", "exporter")),
        (("edge", "exporter"),),
        (("npu", "plugin"), ("npu", "simulator"), ("edge", "plugin")),
    ],
)
def test_real_boards_are_not_replaced_by_simulated_ones(
    found: tuple[tuple[str, str], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A KUBECONFIG that is set for other work must not cost a cluster its NPUs."""
    monkeypatch.setattr(_Installed, "found", found)
    told = Story(kube=_Installed(kubeconfig=Path("/none")), report=Report())
    with pytest.raises(CommandError, match="env -u KUBECONFIG -u CONTEXT make demo"):
        told.spare_real_boards()

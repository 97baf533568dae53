"""The command on a recorded cluster: tables, JSON, and what missing rights leave."""

import json
from pathlib import Path

import pytest

from kubectl_npu import __main__ as command
from kubectl_npu.client import Kubectl, KubectlError, RefusedError, failure, pod_page
from kubectl_npu.exposition import Sample, samples
from tests.unit.kubectl_npu.objects import RESOURCE, Cluster, of_deployment, pod


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster of three nodes; one exporter does not answer."""
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    made = Cluster()
    made.extra = [of_deployment(pod("holder", on="node1"), "detector", "aaa")]
    return made


def printed(
    capsys: pytest.CaptureFixture[str], cluster: Cluster, *arguments: str, code: int = 0
) -> tuple[str, str]:
    """Return output and notes of a command."""
    assert command.main([*arguments], cluster) == code
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_top(capsys: pytest.CaptureFixture[str], cluster: Cluster) -> None:
    """Load is what happened between two looks; a silent exporter is told and no zero."""
    out, notes = printed(capsys, cluster, "top", "--interval=0.01")
    rows = out.splitlines()
    assert rows[0].startswith("NODE    DEVICE   MODEL    LOAD")
    assert "100% 50% 50%" in rows[1]
    assert "47.2 of 80 °C   cool    1.00 GHz   team/holder" in rows[1]
    assert rows[2].startswith("node2   -")
    assert rows[2].endswith("no exporter answers")
    assert len(rows) == 3, "a node without an NPU has no row"
    assert "node2 does not answer" in notes


def test_top_on_a_terminal_has_colours(
    capsys: pytest.CaptureFixture[str], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says the same."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    out, _ = printed(capsys, cluster, "top", "--interval=0")
    assert "\x1b[32mcool" in out
    assert "47.2 of 80 °C" in out


def test_top_as_json_without_load(capsys: pytest.CaptureFixture[str], cluster: Cluster) -> None:
    """Numbers stay numbers, unknown is null."""
    out, _ = printed(capsys, cluster, "top", "node1", "--interval=0", "-o", "json")
    (item,) = json.loads(out)["items"]
    assert (item["device"], item["load"], item["celsius"]) == ("npu0", [], 47.153)


def test_who(capsys: pytest.CaptureFixture[str], cluster: Cluster) -> None:
    """A Pod with device, team, owner and what its team has used of its share."""
    status = {
        "hard": {f"requests.{RESOURCE}": "2", "pods": "9"},
        "used": {f"requests.{RESOURCE}": "1"},
    }
    cluster.quotas = [{"metadata": {"namespace": "team"}, "status": status}]
    row = printed(capsys, cluster, "who")[0].splitlines()[1]
    assert row.split() == (
        [
            "node1",
            "npu0",
            "team",
            "holder",
            "1",
            RESOURCE,
            "Deployment/detector",
            "-",
            "1",
            "of",
            "2",
        ]
    )
    assert len(printed(capsys, cluster, "who", "-n", "other")[0].splitlines()) == 1


def test_why(capsys: pytest.CaptureFixture[str], cluster: Cluster) -> None:
    """A node, a Pod of the namespace in use, a workload that was refused, and a wrong name."""
    assert "capacity 1, allocatable 0" in printed(capsys, cluster, "why", "node1")[0]
    assert "team/holder has 1" in printed(capsys, cluster, "why", "holder")[0]
    assert "team/holder has 1" in printed(capsys, cluster, "why", "pod/team/holder")[0]
    cluster.events = [
        {
            "reason": "FailedCreate",
            "involvedObject": {"kind": "ReplicaSet", "name": "greedy-aaa"},
            "message": "exceeded quota: npu",
        }
    ]
    assert "replicaset team/greedy-aaa" in printed(capsys, cluster, "why", "greedy")[0]
    assert "there is no node nobody" in printed(capsys, cluster, "why", "nobody")[0]


def test_doctor_is_discontent_without_a_daemonset(
    capsys: pytest.CaptureFixture[str], cluster: Cluster
) -> None:
    """Its exit code says so too."""
    out, _ = printed(capsys, cluster, "doctor", code=1)
    assert "fail  1 DaemonSet" in out
    assert "its log was not read" in out


@pytest.mark.parametrize("what", ["top", "who"])
def test_missing_rights_are_named_and_the_rest_is_shown(
    capsys: pytest.CaptureFixture[str], what: str
) -> None:
    """Without the proxy there are no figures; the Pods are known all the same."""
    cluster = Cluster("get --raw", "get resourcequotas")
    cluster.extra = [pod("holder", on="node1")]
    out, notes = printed(capsys, cluster, what)
    assert ("team" if what == "who" else "no exporter answers") in out
    assert "note: you may not get --raw" in notes
    missing = json.loads(printed(capsys, cluster, what, "-ojson")[0])["missing"]
    assert any("you may not" in line for line in missing)


def test_without_all_namespaces_ones_own_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    """A team's member sees the team's Pods."""
    cluster = Cluster("get nodes", "get pods -A")
    cluster.extra = [pod("holder", on="node1")]
    out, notes = printed(capsys, cluster, "who", "-n", "team")
    assert "holder" in out
    assert len(notes.splitlines()) == 3


def test_refusals_name_the_right_and_the_role() -> None:
    """In the words of the one who lacks it."""
    said = 'Error from server (Forbidden): {} is forbidden: User "u" cannot {} at the cluster scope'
    nodes = failure(["get"], said.format("nodes", 'list resource "nodes" in API group ""'))
    assert str(nodes).startswith("you may not list nodes: left out; the role npu-viewer")
    pods = failure(["get"], said.format("pods", 'list resource "pods" in API group ""'))
    assert "list pods in all namespaces" in str(pods)
    proxy = (
        'Error from server (Forbidden): pods "x:8080" is forbidden: User "u" cannot get resource '
        '"pods/proxy" in API group "" in the namespace "npu-platform"'
    )
    assert "get pods/proxy in namespace npu-platform" in str(failure(["get"], proxy))
    assert isinstance(failure(["get"], "(Forbidden): odd"), RefusedError)
    assert str(failure(["get", "nodes"], "noise\nno route")) == "kubectl get nodes: no route"


def test_kubectl_runs_with_the_callers_options(tmp_path: Path) -> None:
    """Context and kubeconfig are handed on; a program that is not there is one line."""
    program = tmp_path / "kubectl"
    program.write_text('#!/bin/sh\necho "$@"\n[ "$2" != fail ] || { echo no >&2; exit 1; }\n')
    program.chmod(0o755)
    kubectl = Kubectl(options=["--context=edge"], program=str(program))
    assert kubectl.run("get", "nodes") == "--context=edge get nodes\n"
    with pytest.raises(KubectlError, match="kubectl fail: no"):
        kubectl.run("fail")
    with pytest.raises(KubectlError, match="No such file"):
        Kubectl(program=str(tmp_path / "absent")).run("get")


def test_unreachable_cluster_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a client given, kubectl of the PATH is used."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert command.main(["top"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_text_format() -> None:
    """Escapes in labels, time stamps, and lines that are no samples."""
    text = '# HELP x\nx{a="b\\"c\\n",d="e"} 1e+09\ny 2 1700000000\nbroken{ 1\nz nonsense\n'
    assert list(samples(text)) == [
        Sample(name="x", value=1e9, labels={"a": 'b"c\n', "d": "e"}),
        Sample(name="y", value=2.0),
    ]


def test_page_of_a_pod_that_speaks_tls() -> None:
    """The API server is told to use it, by what the kubelet's probe does."""
    asked: list[str] = []

    class Recorder:
        def run(self, *arguments: str) -> str:
            asked.append(arguments[-1])
            return ""

    item = pod("exporter-1", on="node1")
    pod_page(Recorder(), item, "/metrics")
    item["spec"]["containers"][0]["livenessProbe"] = {"httpGet": {"scheme": "HTTPS"}}
    pod_page(Recorder(), item, "/metrics")
    assert asked == [
        "/api/v1/namespaces/team/pods/exporter-1:8080/proxy/metrics",
        "/api/v1/namespaces/team/pods/https:exporter-1:8080/proxy/metrics",
    ]

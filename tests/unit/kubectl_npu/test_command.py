"""The command on a recorded cluster: tables, JSON, and what missing rights leave."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubectl_npu import __main__ as command
from kubectl_npu.client import Kubectl, KubectlError, RefusedError, failure, pod_page
from kubectl_npu.exposition import Sample, samples
from kubectl_npu.picture import quantity
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


@pytest.mark.parametrize("answer", ["", "<html>", "{}"])
def test_what_is_no_list_is_one_line(
    capsys: pytest.CaptureFixture[str],
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
) -> None:
    """Some kubectl are scripts."""
    monkeypatch.setattr(cluster, "run", lambda *_arguments: answer)
    assert printed(capsys, cluster, "who", code=1) == (
        "",
        "kubectl get nodes: answered no list\n",
    )


@pytest.mark.parametrize("seconds", ["inf", "nan", "-1", "soon"])
def test_load_is_measured_over_a_time_that_passes(
    capsys: pytest.CaptureFixture[str], cluster: Cluster, seconds: str
) -> None:
    """Anything else is wrong usage."""
    with pytest.raises(SystemExit) as end:
        command.main(["top", "--interval", seconds], cluster)
    assert end.value.code == 2
    assert "--interval" in capsys.readouterr().err


def test_full_disk_is_one_line(tmp_path: Path) -> None:
    """And no success."""
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\necho '{\"items\": []}'\n")
    program.chmod(0o755)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kubectl_npu", "top", "--interval=0"],
            env={**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "output: No space left on device\n")


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


@pytest.mark.parametrize(
    ("text", "count"),
    [
        *(("0", 0), ("1", 1), ("1k", 1000), ("1e3", 1000), ("1E2", 100), ("2Ki", 2048)),
        *(("1500m", 1), ("1.5k", 1500), ("-1", -1), ("1M", 10**6), ("1Ei", 1 << 60)),
        *(("", 0), ("many", 0), ("9" * 99, 0), ("1e99999", 0), (None, 0)),
    ],
)
def test_quantities_are_those_of_kubernetes(text: object, count: int) -> None:
    """The API server stores 1000 as 1k."""
    assert quantity(text) == count


def test_pod_that_asks_for_a_thousand_is_told_why(
    capsys: pytest.CaptureFixture[str], cluster: Cluster
) -> None:
    """Such a mistake is what `why` is asked about."""
    greedy = pod("greedy")
    greedy["spec"]["containers"][0]["resources"]["limits"] = {RESOURCE: "1k"}
    cluster.extra = [greedy]
    assert (
        f"waits for 1000 {RESOURCE}: no node has so many"
        in (printed(capsys, cluster, "why", "greedy")[0])
    )


def test_messages_cannot_speak_to_the_terminal(
    capsys: pytest.CaptureFixture[str], cluster: Cluster
) -> None:
    """A container writes its own termination message."""
    evil = pod("evil", on="node1")
    waiting = {"reason": "Error", "message": "\x1b]0;owned\x07\nok    all is well\x9b2J"}
    evil["status"]["containerStatuses"] = [{"state": {"waiting": waiting}}]
    cluster.extra = [evil]
    out, _ = printed(capsys, cluster, "why", "evil")
    assert not set(out) & {"\x1b", "\x07", "\x9b"}
    assert "\nok    all" not in out


def test_what_is_interrupted_says_nothing(
    capsys: pytest.CaptureFixture[str], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody did not want to wait."""

    def interrupted(*_arguments: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster, "run", interrupted)
    assert printed(capsys, cluster, "top", code=130) == ("", "")


def test_output_that_is_no_utf_8_is_shown(tmp_path: Path) -> None:
    """Logs hold what programs write."""
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\nprintf 'a\\377b'\n")
    program.chmod(0o755)
    assert Kubectl(program=str(program)).run("logs") == "a\ufffdb"


def test_pages_of_another_version_are_no_end(
    capsys: pytest.CaptureFixture[str], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be read is said and left out."""
    ask = cluster.run

    def run(*arguments: str) -> str:
        return "<html>" if "/allocations" in arguments[-1] else ask(*arguments)

    monkeypatch.setattr(cluster, "run", run)
    out, notes = printed(capsys, cluster, "why", "node1")
    assert "capacity 1" in out
    assert "/allocations is not JSON" in notes

"""``kubectl npu`` against the real API server: what it shows, and with whose rights."""

import pytest
import yaml

from ci.demo.story import NAMESPACE, RESOURCE
from ci.kube import Json, until
from tests.cluster.platform.installed import NpuCommand, Platform, npu_pod

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

STRANGER = "--as=system:serviceaccount:default:default"
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "npu-tried-out", "namespace": "default"},
    "spec": {"hard": {f"requests.{RESOURCE}": "3"}},
}


def surging(name: str, node: str) -> Json:
    """Return a Deployment whose update waits for its own predecessor."""
    pod = npu_pod(name, node)
    spec = {**pod["spec"], "restartPolicy": "Always"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 1,
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    }


def test_who_top_and_why_of_a_busy_board(
    boards: Platform, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Deployment holds the only NPU of a node: everything about it is told, and to whom."""
    command = NpuCommand(boards, capsys)
    kube, node = boards.kube, boards.boards[0]
    deployment = surging("npu-surging", node)
    kube.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([deployment, QUOTA]))
    try:
        until(
            lambda: [row for row in command.items("who") if row["devices"]],
            lambda rows: [row["owner"] for row in rows] == ["Deployment/npu-surging"],
            seconds=60,
            what="who names device and owner",
        )
        row = until(
            lambda: next(r for r in command.items("top", node) if r["device"]),
            lambda seen: bool(seen["holders"]) and seen["load"] and max(seen["load"]) > 0,
            seconds=40,
            what="top shows load",
        )
        assert (row["device"], row["model"], len(row["load"])) == ("npu0", "rk3588", 3)
        assert row["limit_celsius"] == 80.0

        container = deployment["spec"]["template"]["spec"]["containers"][0]
        container["env"] = [{"name": "VERSION", "value": "2"}]
        kube.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(deployment))
        waiting = until(
            lambda: [
                pod["metadata"]["name"]
                for pod in kube.items("pods", "-n", "default", "-l", "app=npu-surging")
                if not pod["spec"].get("nodeName")
            ],
            seconds=30,
            what="a surge Pod that waits",
        )
        (cause, *_) = command.items("why", f"default/{waiting[0]}")
        assert cause["check"] == "surge"

        refused = command("who", user=STRANGER)
        assert "you may not list pods in all namespaces" in refused
        assert "npu-viewer" in refused
    finally:
        kube.delete("deployment", "npu-surging", "-n", "default")
        kube.delete("resourcequota", "npu-tried-out", "-n", "default")


def test_why_of_a_hot_board_and_of_a_pod_that_was_never_made(
    boards: Platform, capsys: pytest.CaptureFixture[str]
) -> None:
    """The guard's own words, and the API server's about a quota."""
    command = NpuCommand(boards, capsys)
    kube, node = boards.kube, boards.boards[1]
    quota = {**QUOTA, "spec": {"hard": {f"requests.{RESOURCE}": "0"}}}
    deployment = surging("npu-refused", node)
    boards.hold(node, 84.0)
    kube.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(quota))
    try:
        kube.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(deployment))
        told = until(
            lambda: command.items("why", "-n", "default", "npu-refused")[0],
            lambda seen: seen["check"] == "quota",
            seconds=40,
            what="the quota's refusal",
        )
        assert "exceeded quota: npu-tried-out" in told["text"]
        boards.await_hot(node, hot=True, seconds=60)
        heat = next(item for item in command.items("why", node) if item["check"] == "heat")
        assert f"{node} is hot" in heat["text"]
        assert "hot=80:NoSchedule" in heat["text"]
    finally:
        kube.delete("deployment", "npu-refused", "-n", "default")
        kube.delete("resourcequota", "npu-tried-out", "-n", "default")
        boards.release(node)
        boards.await_hot(node, hot=False, seconds=120)
    assert NAMESPACE in command("doctor")

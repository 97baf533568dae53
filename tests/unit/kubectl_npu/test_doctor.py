"""The six questions to a cluster, in their order, and the three causes of a waiting Pod."""

import json
from dataclasses import replace

import pytest

from kubectl_npu.__main__ import main
from kubectl_npu.client import Json, KubectlError
from kubectl_npu.finding import Finding
from kubectl_npu.questions import Seen, checks

RESOURCE = "huawei.com/Ascend910"
LOG = """\
{"message": "Found device /dev/davinci0: ascend910b"}
{"message": "Registered resource huawei.com/Ascend910"}
"""


def node(name: str = "n1", *, offers: int = 8, **labels: str) -> Json:
    counts = {RESOURCE: str(offers), "cpu": "4"} if offers else {"cpu": "4"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {"capacity": counts, "allocatable": counts},
    }


def pod(name: str, *, asks: int = 1, phase: str = "Running", on: str | None = "n1") -> Json:
    container = {"name": "c", "resources": {"limits": {RESOURCE: str(asks)}}}
    return {
        "metadata": {"namespace": "team", "name": name},
        "spec": {"containers": [container], "nodeName": on},
        "status": {"phase": phase},
    }


def plugin_pod(*, ready: bool = True) -> Json:
    return {
        "metadata": {"namespace": "npu", "name": "plugin-x"},
        "spec": {"containers": [], "nodeName": "n1"},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


WELL = Seen(
    daemonsets=[
        {
            "metadata": {"namespace": "npu", "name": "plugin"},
            "status": {"desiredNumberScheduled": 1, "numberReady": 1},
        }
    ],
    plugin_pods=[plugin_pod()],
    nodes=[node()],
    pods=[pod("train")],
    logs={"npu/plugin-x": LOG},
    devices={"team/train": ["davinci0"]},
    resources={RESOURCE},
)


def answers(seen: Seen) -> dict[str, Finding]:
    """Return the worst answer to each question."""
    worst: dict[str, Finding] = {}
    rank = {"ok": 0, "warn": 1, "fail": 2}
    for finding in checks(seen):
        before = worst.get(finding.check)
        if before is None or rank[finding.level] > rank[before.level]:
            worst[finding.check] = finding
    return worst


def test_six_answers_in_order_and_all_well() -> None:
    """Each question is answered once for a cluster of one node with one Pod."""
    found = list(checks(WELL))
    assert [finding.check[0] for finding in found] == list("123456")
    assert {finding.level for finding in found} == {"ok"}
    assert "davinci0" in found[4].text


def test_missing_daemonset() -> None:
    """Nothing is installed, or it is another cluster."""
    assert answers(replace(WELL, daemonsets=[], plugin_pods=[]))["1 DaemonSet"].level == "fail"


def test_pod_that_is_not_ready_is_named_with_its_node() -> None:
    """Somebody has to look there."""
    daemonset = {**WELL.daemonsets[0], "status": {"desiredNumberScheduled": 1, "numberReady": 0}}
    lame = answers(replace(WELL, daemonsets=[daemonset], plugin_pods=[plugin_pod(ready=False)]))
    assert "plugin-x on n1" in lame["2 running"].text


def test_found_and_never_registered() -> None:
    """The log has one line and not the other."""
    only_found = replace(WELL, logs={"npu/plugin-x": LOG.splitlines()[0]})
    assert answers(only_found)["3 log"].level == "fail"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Starting the device plugin", "no NPU found"),
        ("Sent the device list", "the beginning of the log is gone"),
    ],
)
def test_a_log_without_a_device_is_old_or_of_a_board_without_one(message: str, said: str) -> None:
    """Also where the kubelet remembers the resource of an earlier plugin, with none to offer."""
    remembered = node()
    remembered["status"] = {**remembered["status"], "allocatable": {RESOURCE: "0"}}
    log = json.dumps({"message": message})
    found = list(checks(replace(WELL, nodes=[remembered], logs={"npu/plugin-x": log})))
    assert [said in finding.text for finding in found if finding.check == "3 log"] == [True]
    assert any("remembers" in finding.remedy for finding in found if finding.check == "4 node")


def test_withdrawn_devices_show_in_the_difference() -> None:
    """Capacity counts what is listed, allocatable what is healthy."""
    less = node()
    less["status"] = {**less["status"], "allocatable": {RESOURCE: "6"}}
    answer = answers(replace(WELL, nodes=[less]))["4 node"]
    assert (answer.level, "allocatable 6" in answer.text) == ("warn", True)
    assert answers(replace(WELL, nodes=[node(offers=0)]))["4 node"].level == "fail"


def test_pod_without_its_device() -> None:
    """It was started before the plugin had registered."""
    assert answers(replace(WELL, devices={"team/train": []}))["5 Pod"].level == "fail"


@pytest.mark.parametrize(
    ("nodes", "asks", "selector", "cause"),
    [
        ([node(offers=0)], 1, {}, "not registered"),
        ([node(offers=4)], 8, {}, "not registered"),
        ([node(zone="a")], 1, {"zone": "b"}, "selector"),
        ([node()], 8, {}, "in use"),
        ([node(), node("n2", zone="b")], 8, {"zone": "b"}, "has not decided"),
    ],
)
def test_three_causes_of_waiting(
    nodes: list[Json], asks: int, selector: dict[str, str], cause: str
) -> None:
    """Not registered, in use, selector; whatever else, the scheduler's own words."""
    waiting = pod("waits", asks=asks, phase="Pending", on=None)
    waiting["spec"]["nodeSelector"] = selector
    answer = answers(replace(WELL, nodes=nodes, pods=[pod("train"), waiting]))["6 Pending"]
    assert cause in answer.text


def test_log_that_cannot_be_read_is_no_missing_device() -> None:
    """A viewer may not read logs."""
    assert "was not read" in answers(replace(WELL, logs={}))["3 log"].text


class Answering:
    """kubectl of that cluster, whose images have no ``ls``."""

    def run(self, *arguments: str) -> str:
        """Answer as kubectl would."""
        if arguments[0] == "logs":
            return LOG
        if arguments[0] == "exec":
            if "ls" in arguments:
                raise KubectlError("no ls")
            return "null\ndavinci0\ndavinci_manager\n"
        items = {
            "daemonsets": WELL.daemonsets,
            "nodes": WELL.nodes,
            "pods": WELL.plugin_pods if "-l" in arguments else WELL.pods,
        }[arguments[1]]
        return json.dumps({"items": items})


class Silent:
    """kubectl that does not get in."""

    def run(self, *_arguments: str) -> str:
        """Fail as kubectl would."""
        raise KubectlError("kubectl get nodes: Unauthorized")


def test_command_asks_with_kubectl_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """An image without ls is asked with Python; a cluster without answer is one line."""
    assert main(["doctor"], Answering()) == 0
    assert "sees davinci0" in capsys.readouterr().out
    assert main(["doctor"], Silent()) == 1
    assert "Unauthorized" in capsys.readouterr().err

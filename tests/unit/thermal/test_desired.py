"""Patches of a Node: only what differs, and never what belongs to others."""

import json

from npu.heat import Heat
from thermal.actions import Release, StopNewWork
from thermal.desired import Desired, desired_of, node_patch, removal_patch, status_patch
from thermal.events import about_node, announcement, event
from thermal.names import ANNOTATION_LABELS, ANNOTATION_STATE, OVERRIDE, TAINT_HOT
from thermal.objects import NodeRecord, node_record
from thermal.policy import ConditionValue, Decision
from thermal.record import Record, decode, encode
from thermal.taints import HotTaint

FOREIGN = {"key": "a", "effect": "NoSchedule"}
HOT = ConditionValue(status="True", reason="Hot", message="m")
COOL = ConditionValue(status="False", reason="TemperatureNormal", message="m")


def node(**changes: object) -> NodeRecord:
    about: dict[str, object] = {"name": "n1", "uid": "u", "resource_version": "7"}
    return NodeRecord(**{**about, **changes})  # type: ignore[arg-type]


def hot_decision() -> Decision:
    return Decision(
        node="n1",
        state=Heat.HOT,
        condition=HOT,
        actions=(StopNewWork(devices=("npu0",), bucket_celsius=80),),
        devices=(),
    )


def test_a_patch_carries_the_version_and_the_whole_list() -> None:
    """Without the version the API server would apply a stale list after a conflict."""
    desired = Desired(hot=HotTaint(effect="NoSchedule", value="80"), state="{}")

    patch = node_patch(node(taints=(FOREIGN,)), desired)

    assert patch == {
        "metadata": {"resourceVersion": "7", "annotations": {ANNOTATION_STATE: "{}"}},
        "spec": {"taints": [FOREIGN, {"key": TAINT_HOT, "value": "80", "effect": "NoSchedule"}]},
    }


def test_nothing_to_do_is_no_patch() -> None:
    """A node as desired is not written."""
    assert node_patch(node(annotations={ANNOTATION_STATE: "{}"}), Desired(state="{}")) is None


def test_kept_taints_are_not_in_the_patch() -> None:
    """A pause after a manual change leaves the list out altogether."""
    patch = node_patch(node(taints=(FOREIGN,)), Desired(keep_taints=True, state="{}"))

    assert patch is not None
    assert "spec" not in patch


def test_taint_of_a_freezing_board_has_no_value() -> None:
    """A board whose data is lost may be closed in winter; ``-5`` is no value of a taint."""
    decision = Decision(
        node="n1",
        state=Heat.UNKNOWN,
        condition=COOL,
        actions=(StopNewWork(devices=("npu0",), bucket_celsius=-5),),
        devices=(),
    )

    desired = desired_of(decision, node(), effect="NoSchedule", since="t", devices=())

    assert desired.hot == HotTaint(effect="NoSchedule", value=None)


def test_no_taint_where_none_is_configured() -> None:
    """taint: none judges and records, but never taints."""
    desired = desired_of(hot_decision(), node(), effect=None, since="", devices=())

    assert desired.hot is None
    assert json.loads(desired.state or "")["state"] == "hot"


def test_a_soft_stop_prefers() -> None:
    """A restrained decision asks the scheduler to avoid the node."""
    decision = hot_decision()
    soft = Decision(
        node="n1",
        state=decision.state,
        condition=decision.condition,
        actions=(StopNewWork(devices=("npu0",), soft=True),),
        devices=(),
    )

    desired = desired_of(soft, node(), effect="NoSchedule", since="", devices=())

    assert desired.hot == HotTaint(effect="PreferNoSchedule")


def test_a_forgotten_node_loses_everything_but_labels() -> None:
    """What describes hardware stays: its driver may come back."""
    forget = Decision(
        node="n1",
        state=Heat.UNKNOWN,
        condition=None,
        actions=(Release(forget=True),),
        devices=(),
    )

    assert desired_of(forget, node(), effect="NoSchedule", since="", devices=()) == Desired()


def test_removal_leaves_what_a_person_set() -> None:
    """Clean-up takes our records, taint and labels, not the person's override."""
    dirty = node(
        taints=(FOREIGN, {"key": TAINT_HOT, "effect": "NoSchedule"}),
        labels={"rockchip.com/npu": "true", OVERRIDE: "observe"},
        annotations={ANNOTATION_STATE: "{}", ANNOTATION_LABELS: '{"rockchip.com/npu":"true"}'},
    )

    assert removal_patch(dirty) == {
        "metadata": {
            "resourceVersion": "7",
            "labels": {"rockchip.com/npu": None},
            "annotations": {ANNOTATION_LABELS: None, ANNOTATION_STATE: None},
        },
        "spec": {"taints": [FOREIGN]},
    }
    assert removal_patch(node(taints=(FOREIGN,))) is None


def test_the_condition_is_written_on_change_only() -> None:
    """Same status, reason and message: no write; the transition time moves with the status."""
    first = status_patch(node(), HOT, "t1")

    assert first is not None
    (entry,) = first["status"]["conditions"]
    assert (entry["type"], entry["lastTransitionTime"]) == ("NPUOverheated", "t1")
    assert status_patch(node(condition=entry), HOT, "t2") is None
    critical = ConditionValue(status="True", reason="Critical", message="m")
    second = status_patch(node(condition=entry), critical, "t2")
    assert second is not None
    assert "lastTransitionTime" not in second["status"]["conditions"][0]


def test_the_condition_is_deleted_by_type() -> None:
    """Removing ours names it: all others stay."""
    assert status_patch(node(condition={"status": "True"}), None, "t") == {
        "status": {"conditions": [{"$patch": "delete", "type": "NPUOverheated"}]}
    }
    assert status_patch(node(), None, "t") is None


def test_news_are_changes_people_want_to_hear() -> None:
    """Hot is news once; a first "all is normal" and a short gap are none."""
    assert announcement(None, COOL, detail="") is None
    assert announcement({"reason": "Hot"}, HOT, detail="") is None
    news = announcement({"reason": "TemperatureNormal"}, HOT, detail="npu0 81 °C")
    assert news is not None
    assert (news.kind, news.reason, news.action) == ("Warning", "NPUHot", "StopNewWork")
    recovered = announcement({"reason": "SensorLost"}, COOL, detail="")
    assert recovered is not None
    assert recovered.reason == "NPUSensorRecovered"


def test_an_event_names_node_and_reporter() -> None:
    """events.k8s.io/v1 requires these fields; its own name starts with the node's."""
    news = announcement(None, HOT, detail="")
    assert news is not None

    made = event(news, about_node(node(name="n1")), instance="guard-0", now="t", serial=255)

    assert made["metadata"] == {"name": "n1.ff", "namespace": "default"}
    assert made["regarding"]["uid"] == "u"
    assert made["reportingController"] == "npu-platform.io/thermal-guard"


def test_a_node_is_trimmed_to_what_counts() -> None:
    """Foreign labels and annotations do not stay in memory; taints stay verbatim."""
    trimmed = node_record(
        {
            "metadata": {
                "name": "n1",
                "labels": {"x": "y", OVERRIDE: "disabled"},
                "annotations": {"big": "…", ANNOTATION_STATE: "{}"},
            },
            "spec": {"taints": [FOREIGN]},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"containerRuntimeVersion": "containerd://1.6.20"},
            },
        }
    )

    assert trimmed.container_runtime == "containerd://1.6.20"
    assert trimmed.labels == {OVERRIDE: "disabled"}
    assert trimmed.annotations == {ANNOTATION_STATE: "{}"}
    assert (trimmed.override, trimmed.ready, trimmed.taints) == ("disabled", True, (FOREIGN,))
    assert node_record({"metadata": {"name": "n2"}}).taints == ()


def test_the_record_survives_a_round_trip() -> None:
    """What is written is what a successor reads."""
    record = Record(
        state=Heat.HOT,
        applied="NoSchedule",
        since="2026-01-01T00:00:00Z",
        devices={"npu0": Heat.HOT},
        hot_entries={"npu0": 2},
    )

    assert decode(encode(record)) == record


def test_a_broken_record_is_none() -> None:
    """A person's edit never stops the guard."""
    for text in (None, "", "{}", '{"state":"boiling"}', "[1]", '{"state":["hot"]}'):
        assert decode(text) is None
    odd = decode('{"state":"hot","devices":{"npu0":["x"]},"hotEntries":{"npu0":1e9,"npu1":-4}}')
    assert odd is not None
    assert dict(odd.devices) == {}
    assert dict(odd.hot_entries) == {"npu1": 0}

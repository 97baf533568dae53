"""A decision becomes rules that taint devices and never a Node."""

from dataclasses import replace

from npu.heat import Heat
from thermal.actions import Action, Expel, Release, StopNewWork
from thermal.dra.rules import (
    Rule,
    marks_of,
    new_rule,
    remarks_of,
    rule_name,
    rule_patch,
    rule_record,
    rules_of,
)
from thermal.dra.slices import SliceRecord
from thermal.objects import Json, NodeRecord
from thermal.policy import Decision

STOP = StopNewWork(devices=("npu0",))
DRIVER = "npu.rockchip.com"


def decision(*actions: Action, state: Heat = Heat.HOT) -> Decision:
    """Return a decision with these actions."""
    return Decision(node="n1", state=state, condition=None, actions=actions, devices=())


def slice_of(*names: str) -> SliceRecord:
    """Return a slice with these devices."""
    return SliceRecord(
        name="s",
        driver=DRIVER,
        node="n1",
        generation=1,
        resource_version="1",
        devices=tuple({"name": name} for name in names),
    )


def rules(
    given: Decision, *names: str, enforce: bool = True, expelling: bool = False
) -> dict[str | None, str]:
    """Return the effects by device; None is the whole pool."""
    found = rules_of(given, [slice_of(*names)], enforce=enforce, expelling=expelling)
    return {rule.device: rule.effect for rule in found}


def test_a_pool_of_several_slices_is_closed_as_one() -> None:
    """All devices of one slice are not all of the pool."""
    both = [slice_of("npu0-s0", "npu0-s1"), slice_of("npu1-s0")]
    found = rules_of(decision(STOP), both, enforce=True, expelling=False)
    assert {rule.device for rule in found} == {"npu0-s0", "npu0-s1"}
    all_ = decision(replace(STOP, devices=("npu0", "npu1")))
    (rule,) = rules_of(all_, both, enforce=True, expelling=False)
    assert rule.device is None


def stored(item: Json, message: str = "", reason: str = "NotStarted") -> Json:
    """Return a rule as the API server has it."""
    item["metadata"]["resourceVersion"] = "5"
    item["spec"]["taint"]["timeAdded"] = "2026-01-01T00:00:00Z"
    condition = {"type": "EvictionInProgress", "message": message, "reason": reason}
    return item | {"status": {"conditions": [condition]}}


def test_strength_follows_the_actions() -> None:
    """Nothing, closed, emptied; what was begun is ended; observing and avoiding ask only."""
    assert rules(decision(), "npu0") == {}
    assert rules(decision(Release(forget=True), STOP), "npu0") == {}
    assert rules(decision(STOP), "npu0") == {None: "NoSchedule"}
    assert rules(decision(STOP), "npu0", enforce=False) == {None: "None"}
    assert rules(decision(replace(STOP, soft=True)), "npu0") == {None: "None"}
    assert rules(decision(STOP, Expel()), "npu0") == {None: "NoExecute"}
    keep = decision(STOP, Expel(start=False))
    assert rules(keep, "npu0") == {None: "NoSchedule"}
    assert rules(keep, "npu0", expelling=True) == {None: "NoExecute"}


def test_one_rule_for_all_devices_or_one_each() -> None:
    """Slots go with their device; a cool card beside a hot one stays open."""
    assert rules(decision(STOP), "npu0-s0", "npu0-s1") == {None: "NoSchedule"}
    assert rules(decision(STOP), "npu0-s0", "npu0-s1", "npu1") == {
        "npu0-s0": "NoSchedule",
        "npu0-s1": "NoSchedule",
    }
    assert rules(decision(STOP), "npu1") == {}


def test_a_rule_is_written_once_and_patched_where_it_differs() -> None:
    """What the API server adds is no difference."""
    (rule,) = rules_of(decision(STOP), [slice_of("npu0")], enforce=True, expelling=False)
    item = new_rule(rule, "{}", release="npu")

    assert item["spec"]["deviceSelector"] == {"driver": DRIVER, "pool": "n1"}
    record = rule_record(stored(item))
    assert rule_patch(record, rule, "{}") is None
    patch = rule_patch(record, replace(rule, effect="NoExecute", value="critical"), "{}")
    assert patch == {
        "metadata": {"resourceVersion": "5"},
        "spec": {
            "taint": {
                "key": "thermal.npu-platform.io/critical",
                "value": "critical",
                "effect": "NoExecute",
            }
        },
    }
    assert rule_patch(record, rule, "new") == {
        "metadata": {
            "annotations": {"thermal.npu-platform.io/state": "new"},
            "resourceVersion": "5",
        }
    }


def test_verdicts_are_passed_on_and_counted() -> None:
    """Only where they say something."""
    rule = Rule(name="r", node="n1", driver=DRIVER, device=None, effect="None", value="hot")
    text = "1 published device selected. 12 pods would be evicted in 2 namespaces if the effect was"
    asked = rule_record(stored(new_rule(rule, "", release="npu"), text))
    silent = rule_record(stored(new_rule(rule, "", release="npu"), "Eviction only", "OtherEffect"))

    assert (asked.pods, silent.pods) == (12, None)
    assert remarks_of([asked, silent]) == {"n1": (text,)}
    assert rule_record({}).verdict == ""


def test_rules_in_force_look_like_taints_to_the_judge() -> None:
    """So that a new leader goes on where the last one was; observing marks nothing."""
    node = NodeRecord(name="n1", taints=({"key": "other", "effect": "NoSchedule"},))
    hot = Rule(name="r", node="n1", driver=DRIVER, device=None, effect="NoExecute", value="x")
    record = rule_record(stored(new_rule(hot, "state", release="npu")))
    observed = replace(record, rule=replace(hot, effect="None"))

    seen = marks_of([record], node)

    assert [taint["key"].rpartition("/")[2] for taint in seen.taints] == [
        "other",
        "hot",
        "critical",
    ]
    assert seen.annotations == {"thermal.npu-platform.io/state": "state"}
    assert marks_of([observed], node) is node
    assert len(rule_name("n" * 253, DRIVER, "npu0-s1")) == 253


def test_devices_that_are_not_ours_are_left_alone() -> None:
    """Somebody copied a slice with its label: one odd name must not end the protection of all."""
    assert rules(decision(STOP), "gpu-0", "npu0", "") == {"npu0": "NoSchedule"}
    assert rules(decision(STOP), "gpu-0") == {}


def test_selector_that_somebody_edited_is_put_right() -> None:
    """A rule for another device than its name says protects nothing."""
    (rule,) = rules_of(decision(STOP), [slice_of("npu0")], enforce=True, expelling=False)
    item = stored(new_rule(rule, "state", release="npu"))
    item["spec"]["deviceSelector"] = {"driver": "gpu.example.com", "pool": "n1", "device": "x"}

    patch = rule_patch(rule_record(item), rule, "state")

    assert patch is not None
    assert patch["spec"]["deviceSelector"] == {"driver": DRIVER, "pool": "n1", "device": None}
    assert patch["spec"]["taint"]["effect"] == "NoSchedule"

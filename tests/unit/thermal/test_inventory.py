"""Inventory labels and whose they are."""

import pytest

from thermal.inventory import decode, encode, labels_of, plan, removal
from thermal.readings import DeviceSample


def npu(**changes: object) -> DeviceSample:
    about: dict[str, object] = {
        "device": "npu0",
        "vendor": "rockchip",
        "model": "rk3588",
        "driver": "rknpu",
        "driver_version": "0.9.8",
        "cores": 3,
    }
    return DeviceSample(**{**about, **changes})  # type: ignore[arg-type]


def test_labels_of_a_board() -> None:
    """Model, cores, driver and a version that can be compared as a number."""
    assert labels_of([npu()]) == {
        "rockchip.com/npu": "true",
        "rockchip.com/npu-model": "rk3588",
        "rockchip.com/npu-cores": "3",
        "rockchip.com/npu-driver": "rknpu",
        "rockchip.com/npu-driver-version": "908",
    }


def test_labels_of_cards() -> None:
    """Ascend cards are counted."""
    cards = [npu(device=f"davinci{n}", vendor="huawei", model="310P3") for n in range(4)]

    assert labels_of(cards)["huawei.com/npu-count"] == "4"


@pytest.mark.parametrize("model", ["", "a b", "-x", "x" * 64, "ä", "x\n"])
def test_what_is_no_label_value_is_left_out(model: str) -> None:
    """A hostile page cannot make the API server refuse the whole patch."""
    assert "rockchip.com/npu-model" not in labels_of([npu(model=model)])


def test_unknown_facts_are_left_out() -> None:
    """No version is no label."""
    labels = labels_of([npu(driver_version=None, cores=None)])

    assert "rockchip.com/npu-driver-version" not in labels
    assert "rockchip.com/npu-cores" not in labels


def test_new_labels_are_set_and_owned() -> None:
    """On a fresh node everything is set and recorded."""
    planned = plan({}, {}, {"rockchip.com/npu": "true"})

    assert planned.changes == {"rockchip.com/npu": "true"}
    assert planned.owned == {"rockchip.com/npu": "true"}


def test_a_label_set_by_hand_is_left_alone() -> None:
    """Present without a record: a person's, whether it is equal or not."""
    for value in ("rk3588", "mine"):
        planned = plan({"rockchip.com/npu-model": value}, {}, {"rockchip.com/npu-model": "rk3588"})
        assert (planned.changes, planned.owned) == ({}, {})


def test_a_label_changed_by_hand_becomes_the_persons() -> None:
    """A value that is not the recorded one was set by somebody else."""
    planned = plan(
        {"rockchip.com/npu-model": "mine"},
        {"rockchip.com/npu-model": "rk3588"},
        {"rockchip.com/npu-model": "rk3588"},
    )

    assert (planned.changes, planned.owned) == ({}, {})


def test_own_labels_follow_the_board() -> None:
    """A driver update changes the label we set."""
    planned = plan({"k": "908"}, {"k": "908"}, {"k": "909"})

    assert (planned.changes, planned.owned) == ({"k": "909"}, {"k": "909"})


def test_missing_facts_remove_nothing() -> None:
    """A driver that is away for an upgrade keeps its labels."""
    planned = plan({"k": "908"}, {"k": "908"}, {})

    assert (planned.changes, planned.owned) == ({}, {"k": "908"})


def test_removal_takes_only_what_is_still_ours() -> None:
    """Clean-up leaves what a person changed since."""
    planned = removal({"a": "1", "b": "changed"}, {"a": "1", "b": "2", "c": "3"})

    assert planned.changes == {"a": None}


def test_record_survives_a_round_trip_and_garbage_is_empty() -> None:
    """What a person scribbled into the annotation owns nothing."""
    owned = {"rockchip.com/npu": "true"}

    assert decode(encode(owned)) == owned
    for text in (None, "", "[]", "{", '{"kubernetes.io/hostname":"x"}', "[" * 10_000):
        assert decode(text) == {}

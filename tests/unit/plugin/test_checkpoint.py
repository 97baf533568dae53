"""Devices that the kubelet keeps for nobody are told, after a while."""

import contextlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.checkpoint import (
    SETTLED_SECONDS,
    STALE_SECONDS,
    CheckpointError,
    CheckpointWatch,
    Entry,
    parse,
)
from tests.unit.plugin.boards import RESOURCE

ENTRY = Entry(resource=RESOURCE, id="npu0", pod_uid="uid-1", container="main")


def checkpoint(*entries: Entry) -> str:
    """Return a checkpoint as kubelets write it."""
    listed = [
        {
            "PodUID": entry.pod_uid,
            "ContainerName": entry.container,
            "ResourceName": entry.resource,
            "DeviceIDs": {"-1": [entry.id]},
            "AllocResp": "CgA=",
        }
        for entry in entries
    ]
    registered = {RESOURCE: ["npu0"]}
    data = {"PodDeviceEntries": listed or None, "RegisteredDevices": registered}
    return json.dumps({"Data": data, "Checksum": 1})


class Scene:
    """A checkpoint file, what Pods hold, and a clock."""

    def __init__(self, directory: Path) -> None:
        self.now = 0.0
        self.path = directory / "kubelet_internal_checkpoint"
        self.held: dict[str, tuple[str, ...]] | None = {}
        self.writings = 0
        self.watch = CheckpointWatch(
            self.path,
            ours={RESOURCE}.__contains__,
            held=lambda: self.held,
            monotonic=lambda: self.now,
        )

    def write(self, *entries: Entry) -> None:
        """Write the file, as another one than before."""
        self.writings += 1
        self.path.write_text(checkpoint(*entries))
        os.utime(self.path, ns=(self.writings, self.writings))

    def after(self, seconds: float) -> tuple[Entry, ...]:
        """Return what is stale after a look ``seconds`` later."""
        self.now += seconds
        self.watch.step()
        return self.watch.stale


def test_entry_without_a_pod_is_told_after_a_while(tmp_path: Path) -> None:
    """An init container's device and one just handed out look the same, for some seconds."""
    scene = Scene(tmp_path)
    scene.write(ENTRY)

    assert scene.after(0) == ()
    assert scene.after(SETTLED_SECONDS) == ()
    scene.write(ENTRY)
    assert scene.after(STALE_SECONDS - SETTLED_SECONDS - 1) == ()
    assert scene.after(1) == (ENTRY,)
    scene.write()
    assert scene.after(10) == ()


def test_entry_with_a_pod_is_none(tmp_path: Path) -> None:
    """And a time with a Pod starts the count over."""
    scene = Scene(tmp_path)
    scene.write(ENTRY)
    scene.after(0)
    scene.held = {RESOURCE: ("npu0",)}

    assert scene.after(STALE_SECONDS) == ()
    scene.held = {}
    assert scene.after(10) == ()
    assert scene.after(SETTLED_SECONDS) == ()
    scene.write(ENTRY)
    assert scene.after(STALE_SECONDS) == (ENTRY,)


def test_file_that_was_not_written_since_proves_nothing(tmp_path: Path) -> None:
    """Kubelets leave Pods that ended in the file until there is another reason to write it."""
    scene = Scene(tmp_path)
    scene.held = {RESOURCE: ("npu0",)}
    scene.write(ENTRY)
    scene.after(0)
    scene.held = {}

    for _ in range(10):
        assert scene.after(STALE_SECONDS) == ()


def test_what_a_starting_kubelet_writes_proves_nothing(tmp_path: Path) -> None:
    """It writes down what it has read, before it knows which Pods there are."""
    scene = Scene(tmp_path)
    scene.write(ENTRY)
    scene.after(0)
    scene.after(STALE_SECONDS)

    scene.watch.kubelet_started()
    scene.write(ENTRY)

    assert scene.after(10) == ()
    assert scene.after(STALE_SECONDS) == ()


def test_silent_kubelet_changes_nothing(tmp_path: Path) -> None:
    """Without PodResources nothing is known about Pods."""
    scene = Scene(tmp_path)
    scene.write(ENTRY)
    scene.held = None

    scene.after(0)
    assert scene.after(10 * STALE_SECONDS) == ()


def test_missing_and_foreign_files_are_no_error(tmp_path: Path) -> None:
    """Before the first allocation there is no file; what cannot be used is told with its path."""
    scene = Scene(tmp_path)
    scene.after(0)
    assert scene.watch.problem is None
    scene.path.write_bytes(b"\xff{")

    scene.after(10)

    assert scene.watch.problem is not None
    assert str(scene.path) in scene.watch.problem


def test_foreign_resources_are_left_out() -> None:
    """Only our own devices are our business."""
    other = Entry(resource="nvidia.com/gpu", id="GPU-1", pod_uid="u", container="c")

    assert parse(checkpoint(ENTRY, other), ours={RESOURCE}.__contains__) == {ENTRY}


@given(
    st.text()
    | st.recursive(
        st.none() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["Data", "PodDeviceEntries", "DeviceIDs", "ResourceName"]), inner
            )
        ),
    ).map(json.dumps)
)
def test_garbage_raises_one_kind_of_error(text: str) -> None:
    """Whatever the file holds, the answer is entries or CheckpointError."""
    with contextlib.suppress(CheckpointError):
        assert parse(text, ours=lambda _resource: True) == frozenset()


def test_number_of_bytes_is_no_entry() -> None:
    """A cut file is told, not half used."""
    with pytest.raises(CheckpointError):
        parse(checkpoint(ENTRY)[:-9], ours=lambda _resource: True)

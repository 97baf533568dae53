"""ResourceSlices say what nodes offer, and change only when that does."""

from dataclasses import replace

from thermal.dra.offers import OfferedDevice, OfferedDriver
from thermal.dra.slices import new_slice, slice_name, slice_patch, slice_record
from thermal.dra.view import Overlay
from thermal.objects import NodeRecord

DEVICE = OfferedDevice(
    name="npu0",
    state="healthy",
    reason="ok",
    attributes={
        "resource": "rockchip.com/npu",
        "cores": 3,
        "driverVersion": "0.9.8",
        "simulated": False,
    },
)
DRIVER = OfferedDriver(name="npu.rockchip.com", registered=True, devices=(DEVICE,))
HOT = replace(DRIVER, devices=(replace(DEVICE, state="withdrawn", reason="hot"),))


def test_slice_of_a_node() -> None:
    """Types of attributes are those that claims compare; the slice belongs to its Node."""
    item = new_slice("n1", "uid-1", DRIVER, release="npu")

    assert item["metadata"]["name"] == "n1-npu.rockchip.com"
    assert item["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
    assert item["spec"]["pool"] == {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    (device,) = item["spec"]["devices"]
    assert device["attributes"] == {
        "resource": {"string": "rockchip.com/npu"},
        "cores": {"int": 3},
        "driverVersion": {"version": "0.9.8"},
        "simulated": {"bool": False},
    }
    assert "taints" not in device


def test_a_change_is_one_patch_with_a_new_generation() -> None:
    """Times that the API server adds to taints are no change."""
    item = new_slice("n1", "uid-1", DRIVER, release="npu")
    item["metadata"]["resourceVersion"] = "7"

    assert slice_patch(slice_record(item), DRIVER) is None
    patch = slice_patch(slice_record(item), HOT)

    assert patch is not None
    assert patch["metadata"] == {"resourceVersion": "7"}
    assert patch["spec"]["pool"]["generation"] == 2
    (device,) = patch["spec"]["devices"]
    assert device["taints"] == [
        {"key": "npu-platform.io/withdrawn", "effect": "NoSchedule", "value": "hot"}
    ]
    device["taints"][0]["timeAdded"] = "2026-01-01T00:00:00Z"
    item["spec"] |= patch["spec"]
    assert slice_patch(slice_record(item), HOT) is None


def test_names_fit_and_differ() -> None:
    """A Node's name may have as many characters as a slice's."""
    long = "n" * 253
    names = {slice_name(node, "npu.rockchip.com") for node in (long, long[:-1], "n1")}

    assert len(names) == 3
    assert all(len(name) <= 253 for name in names)


def test_published_devices_count_as_those_of_a_node() -> None:
    """Budgets count per resource; a tainted device is none, and nothing changes without need."""
    node = NodeRecord(name="n1", allocatable={"example.com/x": 2}, capacity={"rockchip.com/npu": 0})
    overlay = Overlay()

    good = slice_record(new_slice("n1", "u", DRIVER, release="npu"))
    seen = overlay({"n1": node}, [good])

    assert seen["n1"].allocatable == {"example.com/x": 2, "rockchip.com/npu": 1}
    assert overlay({"n1": node}, [good])["n1"] is seen["n1"]
    bad = slice_record(new_slice("n1", "u", HOT, release="npu"))
    tainted = overlay({"n1": node}, [bad])["n1"]
    assert tainted.allocatable == {"example.com/x": 2}
    assert tainted.capacity == {"rockchip.com/npu": 1}
    assert overlay({"n1": node}, [replace(bad, node="gone")]) == {"n1": node}

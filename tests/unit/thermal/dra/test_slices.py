"""ResourceSlices say what nodes offer, and change only when that does."""

from dataclasses import replace

from tests.unit.thermal.dra.pool_facts import DRIVER, HOT, published
from thermal.dra.slices import slice_name
from thermal.dra.view import Overlay
from thermal.objects import NodeRecord


def test_names_fit_and_differ() -> None:
    """A Node's name may have as many characters as a slice's."""
    long = "n" * 253
    names = {
        slice_name(node, "npu.rockchip.com", part)
        for node in (long, long[:-1], "n1")
        for part in range(3)
    }

    assert len(names) == 9
    assert all(len(name) <= 253 for name in names)


def test_published_devices_count_as_those_of_a_node() -> None:
    """Budgets count per resource; a tainted device is none, and nothing changes without need."""
    node = NodeRecord(name="n1", allocatable={"example.com/x": 2}, capacity={"rockchip.com/npu": 0})
    overlay = Overlay()

    good = published(DRIVER)
    seen = overlay({"n1": node}, [good])

    assert seen["n1"].allocatable == {"example.com/x": 2, "rockchip.com/npu": 1}
    assert overlay({"n1": node}, [good])["n1"] is seen["n1"]
    bad = published(HOT)
    tainted = overlay({"n1": node}, [bad])["n1"]
    assert tainted.allocatable == {"example.com/x": 2}
    assert tainted.capacity == {"rockchip.com/npu": 1}
    assert overlay({"n1": node}, [replace(bad, node="gone")]) == {"n1": node}

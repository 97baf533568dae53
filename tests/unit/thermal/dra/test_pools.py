"""A pool is written so that a scheduler never sees half of a change, however it is interrupted."""

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.thermal.dra.pool_facts import DEVICE, DRIVER, HOT, Store
from thermal.dra.offers import OfferedDriver
from thermal.dra.pools import SLICE_DEVICES
from thermal.dra.slices import devices_of
from thermal.objects import Json


def driver_of(count: int, *, withdrawn: int | None = None) -> OfferedDriver:
    """Return a driver with so many devices, one of which may be withdrawn."""
    devices = (
        replace(DEVICE, name=f"davinci0-s{number}", state="withdrawn", reason="hot")
        if number == withdrawn
        else replace(DEVICE, name=f"davinci0-s{number}")
        for number in range(count)
    )
    return replace(DRIVER, devices=tuple(devices))


def test_slice_of_a_node() -> None:
    """Types of attributes are those that claims compare; the slice belongs to its Node."""
    (write,) = Store().differences(DRIVER)

    assert write.operation == "create"
    assert write.body["metadata"]["name"] == "n1-npu.rockchip.com"
    assert write.body["metadata"]["labels"] == {"npu-platform.io/published-by": "npu"}
    assert write.body["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
    assert write.body["spec"]["pool"] == {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    (device,) = write.body["spec"]["devices"]
    assert device["attributes"] == {
        "resource": {"string": "rockchip.com/npu"},
        "cores": {"int": 3},
        "driverVersion": {"version": "0.9.8"},
        "simulated": {"bool": False},
    }
    assert "taints" not in device


def test_a_change_is_one_patch_with_a_new_generation() -> None:
    """Times that the API server adds to taints are no change."""
    store = Store()
    store.publish(DRIVER)
    assert store.differences(DRIVER) == ()

    (patch,) = store.differences(HOT)

    assert (patch.operation, patch.name) == ("update", "n1-npu.rockchip.com")
    assert patch.body["metadata"] == {"resourceVersion": "1"}
    assert patch.body["spec"]["pool"]["generation"] == 2
    (device,) = patch.body["spec"]["devices"]
    assert device["taints"] == [
        {"key": "npu-platform.io/withdrawn", "effect": "NoSchedule", "value": "hot"}
    ]
    store.put(patch)
    assert store.differences(HOT) == ()


def test_what_does_not_fit_into_a_slice_goes_into_another() -> None:
    """All are rewritten for a change in one of them; one too many is deleted after the others."""
    store = Store()
    store.publish(driver_of(130))
    names = [f"n1-npu.rockchip.com{tail}" for tail in ("", "-1", "-2")]
    assert list(store.items) == names
    assert [len(item.devices) for item in store.records()] == [64, 64, 2]
    assert [(item.generation, item.count) for item in store.records()] == [(1, 3)] * 3

    changed = store.differences(driver_of(130, withdrawn=7))
    assert [(write.operation, write.name) for write in changed] == [("update", n) for n in names]

    shrunk = store.differences(driver_of(128))
    assert [(write.operation, write.name) for write in shrunk] == [
        *(("update", name) for name in names[:2]),
        ("delete", names[2]),
    ]


def test_slices_of_a_driver_that_the_kubelet_does_not_know_are_not_made() -> None:
    """It deletes them. Those that are there follow their devices, unless one of them is missing."""
    away = replace(driver_of(130), registered=False)
    assert Store().differences(away) == ()
    store = Store()
    store.publish(driver_of(130))
    assert len(store.differences(replace(driver_of(130, withdrawn=7), registered=False))) == 3
    del store.items["n1-npu.rockchip.com-1"]
    assert store.differences(away) == ()
    (write,) = store.differences(driver_of(130))
    assert write.operation == "create"
    assert write.body["spec"]["pool"]["generation"] == 1


def test_slices_that_no_update_puts_right_are_made_anew() -> None:
    """After a hand at them: the API server takes no greater generation, and no other pool."""
    names = [f"n1-npu.rockchip.com{tail}" for tail in ("", "-1", "-2")]
    for spoil in ({"generation": (1 << 63) - 1}, {"name": "n2"}):
        store = Store()
        store.publish(driver_of(130))
        spec = store.items[names[1]]["spec"]
        spec["pool"] = {**spec["pool"], **spoil}
        changed = driver_of(130, withdrawn=7)
        (write,) = store.differences(changed)
        assert (write.operation, write.name) == ("delete", names[1])
        store.put(write)
        store.publish(changed)
        assert store.differences(changed) == ()
        assert [item.generation for item in store.records()] == [2, 2, 2]


def test_a_hand_at_generations_counts_and_devices_is_put_right() -> None:
    """Also at one slice of several, and at one more that somebody made."""
    wanted = driver_of(130)
    for number in (0, 2):
        for spoil in ({"generation": 9}, {"generation": 0}, {"resourceSliceCount": 2}):
            store = Store()
            store.publish(wanted)
            name = list(store.items)[number]
            spec = store.items[name]["spec"]
            store.items[name]["spec"] = spec | {"pool": spec["pool"] | spoil}
            copy = store.items[name]
            store.items["copy"] = copy | {"metadata": copy["metadata"] | {"name": "copy"}}
            store.publish(wanted)
            assert store.differences(wanted) == ()
            assert by_name(store.usable() or ()) == by_name(devices_of(wanted))
            assert "copy" not in store.items


COUNTS = st.sampled_from([0, 1, 63, 64, 65, 128, 129, 200])
OFFERS = st.builds(
    lambda count, place: driver_of(count, withdrawn=place),
    COUNTS,
    st.none() | st.integers(0, 199),
)
#: An offer and how many writes come through before an interruption; or which slice somebody
#: deletes; or all of them, as a kubelet does.
STEPS = st.lists(
    st.tuples(OFFERS, st.integers(0, 6)) | st.integers(0, 3) | st.just("wiped"), max_size=12
)


@given(steps=STEPS, last=OFFERS)
def test_no_mixture_is_ever_usable_and_all_ends_as_offered(
    steps: list[tuple[OfferedDriver, int] | int | str], last: OfferedDriver
) -> None:
    """Whatever is interrupted where, and whoever deletes what."""
    watched = Watched()
    for step in steps:
        if isinstance(step, tuple):
            watched.publish(*step)
        elif isinstance(step, str):
            watched.store.items.clear()
        else:
            watched.lose(step)

    watched.publish(last)

    assert watched.store.differences(last) == ()
    if last.devices:
        assert watched.usable() == by_name(devices_of(last))


class Watched:
    """Slices, looked at after each write."""

    def __init__(self) -> None:
        self.store = Store()
        self.offered: list[dict[str, Json]] = [{}]

    def publish(self, driver: OfferedDriver, count: int | None = None) -> None:
        """Write what differs, so many writes of it."""
        self.offered.append(by_name(devices_of(driver)))
        for write in self.store.differences(driver)[:count]:
            self.store.put(write)
            self.look()

    def lose(self, number: int) -> None:
        """Delete one of the slices, if there are so many."""
        for name in list(self.store.items)[number : number + 1]:
            del self.store.items[name]
        self.look()

    def look(self) -> None:
        """See no more than what was offered at some time."""
        assert all(len(item.devices) <= SLICE_DEVICES for item in self.store.records())
        usable = self.usable()
        assert usable is None or usable in self.offered

    def usable(self) -> dict[str, Json] | None:
        """Return what a scheduler would take devices from."""
        usable = self.store.usable()
        return None if usable is None else by_name(usable)


def by_name(devices: Iterable[Json]) -> dict[str, Json]:
    """Return the devices as they were sent, each of which is there once."""
    devices = list(devices)
    found: dict[str, Json] = {device["name"]: dict(device) for device in devices}
    assert len(found) == len(devices)
    for device in found.values():
        if "taints" in device:
            device["taints"] = [
                {key: value for key, value in taint.items() if key != "timeAdded"}
                for taint in device["taints"]
            ]
    return found

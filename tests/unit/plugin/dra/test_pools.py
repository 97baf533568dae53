"""What a node has to allocate, by driver."""

from npu.model import Npu
from plugin.devices import DeviceTable, build_table
from plugin.dra.pools import pool_of, slots_by_driver
from plugin.health import HealthState
from plugin.sharing import Sharing
from tests.unit.plugin.boards import RESOURCES, drm_npu

WELL = HealthState(healthy=True, reason="ok")


def table_of(*npus: Npu, slots: int = 1, ill: str = "") -> DeviceTable:
    """Return the table of NPUs, of which one may be ill."""
    known = {npu.id: npu for npu in npus}
    bad = HealthState(healthy=False, reason="lost", detail="gone")
    health = {name: bad if name == ill else WELL for name in known}
    return build_table(known, health, resources=RESOURCES, held={}, sharing=Sharing(slots=slots))


def test_attributes_are_what_claims_select_by() -> None:
    """Numbers are numbers, versions three numbers, and what is not known is absent."""
    (device,) = pool_of(
        table_of(drm_npu(driver_version="0.9.8")), "npu.rockchip.com", simulated=True
    )

    assert device.name == "npu0"
    assert device.state == "healthy"
    assert dict(device.attributes) == {
        "resource": "rockchip.com/npu",
        "device": "npu0",
        "vendor": "rockchip",
        "model": "rk3588",
        "cores": 3,
        "driver": "rknpu",
        "driverVersion": "0.9.8",
        "simulated": True,
    }
    (plain,) = pool_of(
        table_of(drm_npu(cores=None, driver_version="odd")), "npu.rockchip.com", simulated=False
    )
    assert not {"cores", "driverVersion"} & plain.attributes.keys()


def test_each_driver_has_its_own_devices() -> None:
    """Programs for one kernel driver do not run on the other, so claims never mix them."""
    table = table_of(drm_npu(0), drm_npu(1, driver="rocket"), slots=2, ill="npu1")

    found = slots_by_driver(table)

    assert [slot.id for slot in found["npu.rockchip.com"]] == ["npu0-s0", "npu0-s1"]
    assert [slot.state for slot in found["npu-rocket.rockchip.com"]] == ["unhealthy"] * 2
    assert slots_by_driver(table_of(drm_npu(driver="other"))) == {}


def test_what_a_holder_has_from_another_sharing_is_for_nobody_else() -> None:
    """It goes with its holder: a Pod that got it then would wait for it ever after."""
    npu = drm_npu()
    table = build_table(
        {"npu0": npu},
        {"npu0": WELL},
        resources=RESOURCES,
        held={"rockchip.com/npu": {"npu0"}},
        sharing=Sharing(slots=2),
    )
    found = pool_of(table, "npu.rockchip.com", simulated=True)
    assert {device.name: (device.state, device.reason) for device in found} == dict.fromkeys(
        ("npu0", "npu0-s0", "npu0-s1"), ("withdrawn", "held_in_other_mode")
    )
